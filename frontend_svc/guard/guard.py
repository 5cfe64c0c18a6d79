"""A thread that watches the memory of the process and the connections of its gRPC port.

It is no task of the event loop: what fills the memory may keep that busy.
"""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from frontend_svc.guard.levels import KILL_SHARE, LAST_SHARE, TIGHT_SHARE, Level, level_of
from frontend_svc.guard.memory import Memory, trim
from frontend_svc.guard.shedding import Shedding
from frontend_svc.guard.sockets import PortSockets
from signalbox.errors import StartupError
from signalbox.runtime.process import SHORT_OF_MEMORY_STATUS

log = logging.getLogger(__name__)

CALM_SHARE = 0.5
CALM_S, SAMPLE_S = 0.1, 0.02
"""Between two looks at the memory, below that share of the limit and above it."""
MARK_S = 0.5
"""Between two looks at the connections while there is memory enough."""
RISE_SHARE = 0.01
"""Part of the limit by which the memory in use has to have risen for the next connections to end for it."""
TRIM_S, TRIM_LATER_S = 0.5, 10.0
"""Between two trims: while memory rises or the last one gave something back, and else."""
QUIET_S = 2.0
"""After the last such rise connections are taken again: memory that stays in use is no reason to serve nobody."""
LOG_S = 10.0
"""Least seconds between two lines that say that memory is short: strangers may make it so again and again."""
LAST_S = 0.6
"""From the decision to end until the end, whether calls have heard of it or not."""


@dataclass(frozen=True)
class Port:
    """A port whose connections are watched."""

    sockets: PortSockets
    shedding: Shedding


class Guard:
    """Decides in its own thread; `on_ended` and `on_last` are called there."""

    def __init__(
        self,
        memory: Memory | None,
        on_ended: Callable[[str], None],
        on_last: Callable[[], None],
        leave: Callable[[int], None] = os._exit,
    ) -> None:
        """memory: None: it is not watched. on_ended: is told of each connection that was ended, with the reason.
        on_last: has to end the calls and leave the process within LAST_S. leave: ends the process with a status."""
        self._memory = memory
        self._on_ended, self._on_last, self._leave = on_ended, on_last, leave
        self._port: Port | None = None
        self.level = Level.EASY
        self.used_bytes = 0
        self.is_shut = False
        """No new connection is taken."""
        self._was_shut = False
        """So it was at the last look at the connections."""
        self._risen_to_bytes = 0
        self._shut_until_s = 0.0
        self._next_log_s = self._next_mark_s = self._next_trim_s = self._last_s = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="guard", daemon=True)

    @property
    def share(self) -> float:
        """What is in use of the limit, from 0 to about 1; 0: it is not watched."""
        return self.used_bytes / self._memory.limit_bytes if self._memory is not None else 0.0

    def start(self, port: Port | None) -> None:
        """port: of gRPC; None: it is not served. Raises StartupError when the memory is too little to begin with."""
        self._port = port
        if self._memory is not None:
            self._check_room(self._memory)
        if self._memory is not None or port is not None:
            self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self, now: float) -> None:
        """One look at memory and connections; `now` is any steady clock's."""
        if self._memory is not None:
            self._look_at_memory(self._memory, now)
        if self._port is not None and (self.level is not Level.EASY or now >= self._next_mark_s):
            self._look_at_connections(self._port, now)
        if self._memory is None:
            return
        if self.level is not Level.EASY:
            self._risen_to_bytes = max(self._risen_to_bytes, self.used_bytes)
        if self.level is Level.TIGHT and now >= self._next_trim_s:
            self._trim(self._memory, now)
        if self.level is Level.LAST and not self._last_s:
            self._last_s = now
            self._on_last()
        if self._last_s and (now - self._last_s > LAST_S or self.share > KILL_SHARE):
            self._leave(SHORT_OF_MEMORY_STATUS)

    def _run(self) -> None:
        while not self._stopping.wait(self._pause_s()):
            self.look(time.monotonic())

    def _pause_s(self) -> float:
        if self._memory is None:
            return MARK_S
        return CALM_S if self.share < CALM_SHARE else SAMPLE_S

    def _check_room(self, memory: Memory) -> None:
        self.used_bytes = memory.used_bytes()
        if self.share > LAST_SHARE:
            limit = memory.limit_bytes >> 20
            raise StartupError(
                f"{self.used_bytes >> 20} MiB of the memory limit of {limit} MiB are in use at once"
            )
        if self.share > TIGHT_SHARE:
            log.warning("%.0f %% of the memory limit are in use at the start", 100 * self.share)

    def _look_at_memory(self, memory: Memory, now: float) -> None:
        self.used_bytes = memory.used_bytes()
        before = self.level
        self.level = level_of(self.used_bytes, memory.limit_bytes, before)
        if self.level is Level.EASY:
            self._risen_to_bytes = 0
        elif self._is_rising(memory):
            self._shut_until_s = now + QUIET_S
        self.is_shut = self.level is Level.LAST or (self.level is Level.TIGHT and now < self._shut_until_s)
        if self.level > before and now >= self._next_log_s:
            self._next_log_s = now + LOG_S
            log.warning("short of memory: %d of %d MiB", self.used_bytes >> 20, memory.limit_bytes >> 20)

    def _look_at_connections(self, port: Port, now: float) -> None:
        connections = port.sockets.look()
        is_rising = (
            self._memory is not None and self.level is not Level.EASY and self._is_rising(self._memory)
        )
        # Those that this look finds first may have come before it was shut.
        ends = port.shedding.choose(connections, is_shut=self.is_shut and self._was_shut, is_rising=is_rising)
        self._was_shut = self.is_shut
        if ends:
            port.sockets.reset(ends.keys())
            for reason in ends.values():
                self._on_ended(reason)
        if now >= self._next_mark_s:
            port.shedding.mark(connections)
            self._next_mark_s = now + MARK_S

    def _is_rising(self, memory: Memory) -> bool:
        return self.used_bytes > self._risen_to_bytes + RISE_SHARE * memory.limit_bytes

    def _trim(self, memory: Memory, now: float) -> None:
        gc.collect()  # calls of grpc's, with their headers, are circles
        trim()
        gained = self.used_bytes - memory.used_bytes()
        is_worth_it = self.is_shut or gained > RISE_SHARE * memory.limit_bytes
        self._next_trim_s = now + (TRIM_S if is_worth_it else TRIM_LATER_S)
