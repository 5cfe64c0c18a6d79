"""A port whose connections are watched: what is decided of them is done."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from frontend_svc.guard.ban_file import BanFile
from frontend_svc.guard.packet_filter import Filter
from frontend_svc.guard.shedding import BAN_S, Shedding
from frontend_svc.guard.sockets import PortSockets

log = logging.getLogger(__name__)
MARK_S = 0.5
"""Between two marks of how much each connection has brought."""


class Port:
    """Belongs to the guard's thread."""

    def __init__(
        self,
        sockets: PortSockets,
        shedding: Shedding,
        on_ended: Callable[[str], None],
        bans: BanFile | None = None,
    ) -> None:
        """on_ended: is told of each connection that was ended, with the reason. bans: where a process finds whom the
        one before it had banned; None: nowhere."""
        self._sockets, self._shedding, self._on_ended = sockets, shedding, on_ended
        self._bans = bans
        self._was_shut = False
        self._filter: Filter | None = None
        self._next_mark_s = 0.0

    def begin(self, now: float) -> None:
        """Bans whom the process before this one had banned. The port listens already. Bans are not worth a start: what
        fails is logged."""
        try:
            if self._bans is not None:
                self._take_bans(self._bans, now)
        except Exception:
            log.exception("the bans of the process before could not be taken over")

    def _take_bans(self, bans: BanFile, now: float) -> None:
        left_s = bans.take(time.time(), BAN_S)
        if left_s:
            log.warning("%d clients that filled the memory of the process before stay out", len(left_s))
            self._shedding.ban(left_s, now)
            self._sockets.look()  # which finds out who listens
            self._admit(self._shedding.filter_for(now, is_shut=False))

    def end(self, now: float) -> None:
        """Leaves the bans to the next process."""
        if self._bans is not None:
            self._bans.write(self._shedding.left_s(now), time.time())

    def look(self, now: float, *, is_shut: bool, is_rising: bool) -> None:
        """One look at the connections. is_shut: no new one is taken. is_rising: memory is short and still rises."""
        wanted = self._shedding.filter_for(now, is_shut=is_shut)
        if wanted != self._filter:
            self._admit(wanted)
        connections = self._sockets.look()
        # Those that this look finds first may have come before it was shut.
        is_new_refused = is_shut and self._was_shut
        ends = self._shedding.choose(connections, now, is_shut=is_new_refused, is_rising=is_rising)
        self._was_shut = is_shut
        self._sockets.reset([each for each, _ in ends])
        for _, reason in ends:
            self._on_ended(reason)
        if now >= self._next_mark_s:
            self._shedding.mark(connections)
            self._next_mark_s = now + MARK_S

    def _admit(self, wanted: Filter | None) -> None:
        self._filter = wanted
        self._sockets.admit(wanted)
