"""HTTP connections that end without losing the answer.

Closing a socket whose input nobody has read resets the connection, and a client that still sends its body then may
never see why it was refused. So whoever may still be sending is half-closed, and what comes is thrown away for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from frontend_svc.api.http.bounds import HttpBounds
from frontend_svc.api.http.read_watch import ReadWatchProtocol
from frontend_svc.guard.addresses import AddressCounts


class Crowd:
    """What the connections of one listener know of each other."""

    def __init__(self, addresses: AddressCounts, is_shut: Callable[[], bool]) -> None:
        """is_shut: whether no new connection is taken."""
        self.addresses, self.is_shut = addresses, is_shut
        self.idle: dict[GentleEndProtocol, None] = {}
        """Connections without a request, the longest idle first."""
        self.num_lingering = 0


def host_of(transport: asyncio.BaseTransport) -> str:
    """The address of the client; empty: it is gone."""
    peer = transport.get_extra_info("peername")
    return peer[0] if peer else ""


class _AnswerTransport:
    """What an answer is written to."""

    def __init__(
        self, transport: asyncio.Transport, is_closing: Callable[[], bool], close: Callable[[], None]
    ) -> None:
        self.write, self.is_closing, self.close = transport.write, is_closing, close


class GentleEndProtocol(ReadWatchProtocol):
    """A protocol that knows how to end: at once, when it was idle for long, or once its client has the answer."""

    def __init__(self, *args: Any, bounds: HttpBounds, crowd: Crowd, **options: Any) -> None:
        super().__init__(*args, bounds=bounds, **options)
        self.timeout_keep_alive = bounds.idle_s  # type: ignore[assignment]
        self._crowd = crowd
        self._is_body_due = False
        """The body of the request is not all here."""
        self._left_bytes: int | None = None
        """Further bytes of it that are thrown away behind its answer; None: they are read."""
        self._lingering: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """It is neither idle nor lingers."""
        self._crowd.idle.pop(self, None)
        if self._lingering is not None:
            self._lingering.cancel()
            self._crowd.num_lingering -= 1
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Throws away what nobody will read."""
        self._crowd.idle.pop(self, None)
        if self._left_bytes is not None:
            self._left_bytes -= len(data)
            if self._left_bytes < 0:
                self.transport.close()
                return
        if self._lingering is None:
            super().data_received(data)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Who lingers has waited for this."""
        return None if self._lingering is not None else super().eof_received()

    def on_headers_complete(self) -> None:
        """Its answer ends the connection our way."""
        self._is_body_due = True
        super().on_headers_complete()
        transport: Any = _AnswerTransport(self.transport, self.is_ending, self.end)
        self.cycle.transport = transport

    def on_message_complete(self) -> None:
        """A request that was answered early had only its body to wait for."""
        self._is_body_due, self._left_bytes = False, None
        super().on_message_complete()
        if self.cycle.response_complete and not self.is_ending():
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
            self._crowd.idle[self] = None

    def on_response_complete(self) -> None:
        """Idle from here on, unless there is more to read or to answer."""
        if self._lingering is not None:
            return
        super().on_response_complete()
        if self._is_body_due and not self.pipeline and self.cycle.response_complete:
            self._left_bytes = self._bounds.linger_bytes
            self._unset_keepalive_if_required()  # the bounds of a body hold until it is there
        elif self.timeout_keep_alive_task is not None and not self.is_ending():
            self._crowd.idle[self] = None

    def is_ending(self) -> bool:
        """Nothing may be written any more."""
        return self._lingering is not None or self.transport.is_closing()

    def end(self, *, is_sending: bool = False) -> None:
        """Ends the connection behind what was written. `is_sending`: its client may still be at it, as it is for as
        long as its body is not here."""
        if self.is_ending():
            return
        self._watch_reading()
        is_sending = is_sending or self._is_body_due
        if not is_sending or self._crowd.num_lingering >= self._bounds.max_lingering:
            self.transport.close()
            return
        self._crowd.num_lingering += 1
        self._lingering = self.loop.call_later(self._bounds.linger_s, self.transport.close)
        self._left_bytes = self._bounds.linger_bytes
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.flow.resume_reading()
        if self.transport.can_write_eof():  # not with TLS
            try:
                self.transport.write_eof()
            except OSError:  # it was reset in this moment
                self.transport.abort()
