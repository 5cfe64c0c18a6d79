"""TLS handshakes of HTTP clients: counted among the connections, and bounded in time as heads are."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sized

from frontend_svc.api.http.bounds import HttpBounds
from frontend_svc.api.http.gentle_end import Crowd, host_of


class Handshakes:
    """The handshakes that go on now at one listener."""

    def __init__(
        self, context: ssl.SSLContext, bounds: HttpBounds, crowd: Crowd, on_refused: Callable[[str], None]
    ) -> None:
        """crowd: connections that may make room. on_refused: is told of a connection that was refused."""
        self.context = context
        self._bounds, self._crowd, self._on_refused = bounds, crowd, on_refused
        self._tasks: dict[asyncio.Task[None], asyncio.Transport] = {}

    def begin(self, transport: asyncio.Transport, behind: asyncio.Protocol, connections: Sized) -> None:
        """Hands the connection to `behind` once it is encrypted. connections: those that are. Nothing can be said to
        a client that is refused ahead of its handshake."""
        host = host_of(transport)
        if refusal := self._refusal_of(host):
            self._on_refused(refusal)
            transport.abort()
            return
        if len(connections) + len(self._tasks) >= self._bounds.max_connections:
            idle = next(iter(self._crowd.idle), None)
            if idle is None:
                self._on_refused("connections")
                self._crowd.addresses.leave(host)
                transport.abort()
                return
            del self._crowd.idle[idle]
            idle.transport.close()
        task = asyncio.get_running_loop().create_task(self._shake(transport, behind, host))
        self._tasks[task] = transport
        task.add_done_callback(self._tasks.pop)

    def stop(self) -> None:
        """Ends those that go on."""
        for transport in self._tasks.values():
            transport.abort()

    def _refusal_of(self, host: str) -> str:
        """Why a connection from there is not taken; empty: it is, and counted."""
        if self._crowd.is_shut():
            return "memory"
        return "" if self._crowd.addresses.enter(host) else "address"

    async def _shake(self, transport: asyncio.Transport, behind: asyncio.Protocol, host: str) -> None:
        early = _Early()
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                transport, early, self.context, server_side=True, ssl_handshake_timeout=self._bounds.head_s
            )
        except OSError:  # TLS's and timeouts are such: the transport is closed
            if not early.is_lost:
                transport.abort()
            return
        finally:
            self._crowd.addresses.leave(host)  # `behind` counts it from here on
        if encrypted is None or early.is_lost:
            return  # its client left as soon as it was known
        encrypted.set_protocol(behind)
        behind.connection_made(encrypted)
        if early.data:
            behind.data_received(bytes(early.data))
        if early.is_at_end and not behind.eof_received():
            encrypted.close()


class HandshakeProtocol(asyncio.Protocol):
    """A connection until TLS has it."""

    def __init__(self, handshakes: Handshakes, behind: asyncio.Protocol, connections: Sized) -> None:
        """behind: the protocol that gets it then."""
        self._handshakes, self._behind, self._connections = handshakes, behind, connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins at once."""
        assert isinstance(transport, asyncio.Transport)
        self._handshakes.begin(transport, self._behind, self._connections)


class _Early(asyncio.Protocol):
    """What comes with the end of a handshake, ahead of the turn in which the connection is handed over."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_at_end = self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> bool:
        self.is_at_end = True
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
