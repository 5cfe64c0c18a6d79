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

from frontend_svc.guard.levels import KILL_SHARE, LAST_SHARE, TIGHT_SHARE, Level, forecast, level_of
from frontend_svc.guard.memory import Memory, trim
from frontend_svc.guard.port import Port
from signalbox.errors import StartupError
from signalbox.runtime.parts import Thread
from signalbox.runtime.process import SHORT_OF_MEMORY_STATUS

log = logging.getLogger(__name__)

CALM_SHARE = 0.4
CALM_S, SAMPLE_S = 0.1, 0.02
"""Between two looks at the memory, below that share of the limit and above it."""
LOOK_S = 0.5
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


class Guard:
    """Decides in its own thread; `on_last` is called there."""

    def __init__(
        self, memory: Memory | None, on_last: Callable[[], None], leave: Callable[[int], None] = os._exit
    ) -> None:
        """memory: None: it is not watched. on_last: has to end the calls and leave the process within LAST_S. leave:
        ends the process with a status."""
        self._memory = memory
        self._on_last, self._leave = on_last, leave
        self._port: Port | None = None
        self.level = Level.EASY
        self.used_bytes = 0
        self.is_shut = False
        """No new connection is taken."""
        self._risen_to_bytes = 0
        self._looked_s = self._shut_until_s = 0.0
        self._next_log_s = self._next_look_s = self._next_trim_s = self._last_s = 0.0
        self._trimming = threading.Thread()
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
        if port is not None:
            port.begin(time.monotonic())
        if self._memory is not None or port is not None:
            self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self, now: float) -> None:
        """One look at memory and connections; `now` is any steady clock's."""
        is_rising = self._memory is not None and self._look_at_memory(self._memory, now)
        if self._port is not None and (self.level is not Level.EASY or now >= self._next_look_s):
            self._next_look_s = now + LOOK_S
            self._port.look(now, is_shut=self.is_shut, is_rising=is_rising)
        if self._memory is None:
            return
        if self.level is Level.TIGHT and now >= self._next_trim_s and not self._trimming.is_alive():
            self._next_trim_s = now + TRIM_S
            self._trimming = Thread(target=self._trim, args=(self._memory, now), daemon=True)
            self._trimming.start()
        if self.level is Level.LAST and not self._last_s:
            self._last_s = now
            self._on_last()
            if self._port is not None:
                self._port.end(now)
        if self._last_s and (now - self._last_s > LAST_S or self.share > KILL_SHARE):
            self._leave(SHORT_OF_MEMORY_STATUS)

    def _run(self) -> None:
        while not self._stopping.wait(self._pause_s()):
            now = time.monotonic()
            try:
                self.look(now)
            except Exception:  # no file or thread is to be had, for a moment: the next look may succeed
                if now >= self._next_log_s:
                    self._next_log_s = now + LOG_S
                    log.exception("memory and connections could not be looked at")

    def _pause_s(self) -> float:
        if self._memory is None:
            return LOOK_S
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

    def _look_at_memory(self, memory: Memory, now: float) -> bool:
        """Whether it is short and still rises."""
        used_before, before = self.used_bytes, self.level
        self.used_bytes = memory.used_bytes()
        soon = forecast(used_before, self.used_bytes, now - self._looked_s)
        self._looked_s = now
        self.level = level_of(self.used_bytes, memory.limit_bytes, before, soon)
        is_rising = False
        if self.level is Level.EASY:
            self._risen_to_bytes = 0
        elif self.used_bytes > self._risen_to_bytes + RISE_SHARE * memory.limit_bytes:
            is_rising, self._risen_to_bytes = True, self.used_bytes
            self._shut_until_s = now + QUIET_S
        self.is_shut = self.level is Level.LAST or (self.level is Level.TIGHT and now < self._shut_until_s)
        if self.level > before and now >= self._next_log_s:
            self._next_log_s = now + LOG_S
            log.warning("short of memory: %d of %d MiB", self.used_bytes >> 20, memory.limit_bytes >> 20)
        return is_rising

    def _trim(self, memory: Memory, now: float) -> None:
        """In a thread of its own: it may take as long as filling the memory does."""
        gc.collect()  # calls of grpc's, with their headers, are circles
        before = memory.used_bytes()
        trim()
        gained = before - memory.used_bytes()
        if not self.is_shut and gained < RISE_SHARE * memory.limit_bytes:
            self._next_trim_s = now + TRIM_LATER_S
