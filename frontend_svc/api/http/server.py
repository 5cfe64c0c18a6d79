"""uvicorn inside our event loop: our socket, our signals, our logging."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, cast

import uvicorn

from frontend_svc.api.http.bounded import BoundedProtocol
from frontend_svc.api.http.bounds import HttpBounds, connections_for
from frontend_svc.api.http.gentle_end import Crowd
from frontend_svc.api.http.handshake import HandshakeProtocol, Handshakes
from frontend_svc.guard.addresses import NO_PROXIES, AddressCounts, TrustedProxies
from signalbox.errors import StartupError
from signalbox.links.tls.identity import Identity

DATE_EVERY_S = 1
_CLOSE = (b"connection", b"close")
CLOSE_S = 2
"""How long connections may take to end when the server stops."""


class _Server(uvicorn.Server):
    """Without uvicorn's signal handlers, and asleep instead of looking ten times a second whether to stop."""

    def __init__(self, config: uvicorn.Config, refresh: Callable[[], None]) -> None:
        super().__init__(config)
        self.stopping = asyncio.Event()
        self._refresh = refresh

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """The process has its own handlers."""
        yield

    async def main_loop(self) -> None:
        """Keeps the Date header right, and the certificate that is shown."""
        while not self.stopping.is_set():
            await self.on_tick(0)
            self._refresh()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), DATE_EVERY_S)


class HttpServer:
    """A server of one ASGI application."""

    def __init__(
        self,
        app: Any,
        *,
        reuse_port: bool = False,
        bounds: HttpBounds | None = None,
        on_refused: Callable[[str], None] = lambda word: None,
        identity: Identity | None = None,
        proxies: TrustedProxies = NO_PROXIES,
        is_shut: Callable[[], bool] = lambda: False,
    ) -> None:
        """bounds: of its connections; None: those of every process. on_refused: is told of a connection that was
        refused by one of them. identity: what clients are shown, by TLS; None: plaintext. proxies: whose connections
        are not counted by address. is_shut: whether no new connection is taken."""
        self._reuse_port = reuse_port
        bounds = bounds or HttpBounds(connections_for(0))
        crowd = Crowd(AddressCounts(bounds.max_per_address, proxies), is_shut)
        self._plain = partial(BoundedProtocol, bounds=bounds, crowd=crowd, on_refused=on_refused)
        self._identity = identity
        self._handshakes: Handshakes | None = None
        if identity is not None:
            self._handshakes = Handshakes(identity.http_context(), bounds, crowd, on_refused)
        self._server = _Server(
            uvicorn.Config(
                app,
                http=cast(Any, self._make),
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",  # it warns of every request that nobody understands, and those are counted
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=CLOSE_S,
            ),
            self._refresh,
        )
        self._task: asyncio.Task[None] | None = None
        self._listener: socket.socket | None = None

    async def start(self, address: str) -> int:
        """Listens on `host:port` (port 0: any) and returns the port. Raises StartupError when it cannot."""
        listener = self._listener = bind(address, reuse_port=self._reuse_port)
        self._task = asyncio.create_task(self._server.serve([listener]))
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.01)
        port: int = listener.getsockname()[1]
        return port

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The task that serves, from `start` on; it ends before `stop` only by an error."""
        return self._task

    async def leave(self) -> None:
        """Ends each connection with its next answer. A shared port is left to the others: first all are accepted
        that wait there, as closing it would break them. A port of our own goes on to be served."""
        self._server.config.encoded_headers.append(_CLOSE)
        self._server.server_state.default_headers = [*self._server.server_state.default_headers, _CLOSE]
        if self._reuse_port and self._listener is not None:
            await self._hand_over(self._listener)

    async def _hand_over(self, listener: socket.socket) -> None:
        """Nothing that goes wrong with a connection here keeps the server from stopping."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)
        for _ in range(2):  # those that were accepted last find their server open
            await asyncio.sleep(0)
        waiting = []
        with contextlib.suppress(OSError):  # there are no more, or no handles for them
            while True:
                waiting.append(listener.accept()[0])
        for server in self._server.servers:
            server.close()
        for connection in waiting:
            connection.setblocking(False)
            with contextlib.suppress(OSError):  # its client is gone
                await loop.connect_accepted_socket(self._make_protocol, connection)

    def _make_protocol(self) -> asyncio.Protocol:
        config, state = self._server.config, self._server.server_state
        return self._make(config=config, server_state=state, app_state={})

    def _make(self, **options: Any) -> asyncio.Protocol:
        """A protocol for a new connection. TLS is ours: uvicorn would count connections only behind it."""
        plain = self._plain(**options)
        if self._handshakes is None:
            return plain
        return HandshakeProtocol(self._handshakes, plain, plain.connections)

    def _refresh(self) -> None:
        """Shows the certificate that is in the files now."""
        if self._identity is not None and self._handshakes is not None:
            self._identity.refresh(self._handshakes.context)

    async def stop(self) -> None:
        """Takes no connection any more, and ends those that are open."""
        self._server.stopping.set()
        if self._handshakes is not None:
            self._handshakes.stop()
        if self._task is not None:
            await self._task


def bind(address: str, *, reuse_port: bool = False) -> socket.socket:
    """A socket bound to `host:port`, which `reuse_port` shares. Raises StartupError when it cannot be."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets that say they are TCP; without it a first token waits 40 ms for an ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuse_port:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, int(port)))
    except OSError as error:
        listener.close()
        raise StartupError(f"cannot listen on {address}: {error.strerror}") from None
    listener.setblocking(False)
    return listener
