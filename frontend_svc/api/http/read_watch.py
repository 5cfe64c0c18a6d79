"""HTTP connections whose client has to read its answers: one that does not is ended, with whatever waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from frontend_svc.api.http.bounds import HttpBounds
from frontend_svc.api.http.half_close import HalfCloseProtocol, is_events
from frontend_svc.api.http.patience import Patience, bytes_taken

LOOKS = 8
"""So often a client is looked at in the time that it may take nothing."""


class ReadWatchProtocol(HalfCloseProtocol):
    """Looks after answers from when on bytes wait that the kernel does not take."""

    def __init__(
        self, *args: Any, bounds: HttpBounds, on_refused: Callable[[str], None], **options: Any
    ) -> None:
        """on_refused: gets the word for what was too much."""
        super().__init__(*args, **options)
        self._bounds, self._on_refused = bounds, on_refused
        self._patience: Patience | None = None
        """None: nothing waits."""
        self._reading: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing waits any more."""
        if self._reading is not None:
            self._reading.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """More waits than is to be in memory."""
        super().pause_writing()
        self._watch_reading()

    def on_response_complete(self) -> None:
        """What is left of an answer has nobody else to wait for it: also when the connection is closed behind it."""
        super().on_response_complete()
        self._watch_reading()

    def _watch_reading(self) -> None:
        """Begins to look, if bytes wait: also ahead of closing, behind which nobody else writes or looks."""
        if self._patience is not None or not self.transport.get_write_buffer_size():
            return
        is_stream = self.cycle is not None and is_events(self.cycle.scope["state"])
        least = 0.0 if is_stream else self._bounds.answer_bytes_s
        taken = bytes_taken(self.transport)
        self._patience = Patience(self.loop.time(), taken, self._bounds.stall_s, least)
        self._look_at_reader()

    def _look_at_reader(self) -> None:
        assert self._patience is not None, "something waits"
        if not (self.flow.write_paused or self.transport.get_write_buffer_size()):
            self._patience = self._reading = None
        elif self._patience.is_over(self.loop.time(), bytes_taken(self.transport)):
            self._on_refused("slow_reader")
            self.transport.abort()
        else:
            self._reading = self.loop.call_later(self._bounds.stall_s / LOOKS, self._look_at_reader)
