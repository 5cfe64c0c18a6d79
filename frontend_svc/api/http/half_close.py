"""HTTP connections whose client has sent all that it will send, and waits for its answer.

The end of a client's bytes looks the same whether it has only closed its half (`shutdown(SHUT_WR)`, as `nc -N` and some
proxies do) or is gone. Only what is written to it tells: a client that is gone resets the connection. Before an answer
begins, that is `100 Continue`, which every HTTP/1.1 client has to skip; between the events of a stream, a comment.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LOOK_EVERY_S = 0.05
"""The answer to what was written may come from far away; nothing wakes us, as nobody reads any more."""
ASK_EVERY_S = 5.0
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_COMMENT = b":\n\n"
_IS_EVENTS = "is_events"
"""Key of the request's state: its answer is a stream of events."""


def say_events(scope: Scope) -> None:
    """The answer is a stream of events, each sent as a whole."""
    scope.setdefault("state", {})[_IS_EVENTS] = True


def is_events(state: Mapping[str, object]) -> bool:
    """Whether the answer to the request with this state is a stream of events, so far as it is known."""
    return bool(state.get(_IS_EVENTS))


class HalfCloseProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which else drops a request as soon as its client sends no more."""

    _looking: asyncio.TimerHandle | None = None
    _asked_s = 0.0
    _below: object = None
    """The transport of the socket where TLS has one of its own above it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """TLS names the transport below no more when the connection is lost."""
        super().connection_made(transport)
        self._below = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """True: the connection stays open until the request that is here in full has its answer."""
        cycle = self.cycle
        if cycle is None or cycle.more_body or cycle.response_complete:
            return None
        if cycle.scope["http_version"] != "1.1":
            return (
                None  # nothing may be written to it ahead of the answer, and proxies that leave are the rule
            )
        cycle.keep_alive = False  # nothing comes behind it
        self._ask()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is left to look after. What refers to each other is taken apart, so that it is freed without a
        collection (`Collector`)."""
        if self._looking is not None:
            self._looking.cancel()
        super().connection_lost(exc)
        self.cycle = self.parser = None  # type: ignore[assignment]
        for transport in (self.transport, self._below):
            if hasattr(transport, "_read_ready_cb"):  # asyncio's own refers to itself by it
                transport._read_ready_cb = None

    def _ask(self) -> None:
        """Writes something that clients skip, if something may be written now."""
        cycle = self.cycle
        if cycle.response_started and cycle.chunked_encoding and is_events(cycle.scope["state"]):
            self.transport.write(b"%x\r\n%b\r\n" % (len(_COMMENT), _COMMENT))
        elif not self.pipeline and not cycle.response_started:
            self.transport.write(_CONTINUE)
        self._asked_s = self.loop.time()
        self._looking = self.loop.call_later(LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        if self.transport.is_closing() or self.cycle.response_complete:
            return
        connection = self.transport.get_extra_info("socket")
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()  # it was reset
        elif self.loop.time() - self._asked_s >= ASK_EVERY_S:
            self._ask()
        else:
            self._looking = self.loop.call_later(LOOK_EVERY_S, self._look)
