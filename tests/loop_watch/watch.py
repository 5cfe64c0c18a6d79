"""Runs in a service under test: measures each callback of its event loops."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.loop_watch.callback import describe, stack_of

FILE = "LOOP_WATCH_FILE"
"""Environment variable: the file that lines are added to. Unset: nothing is watched."""
LIMIT = "LOOP_WATCH_LIMIT_S"
"""Environment variable: processor time of its thread above which a callback is reported; unset: LIMIT_S."""
LIMIT_S = 0.125
SAMPLE_S = 0.02


@dataclass
class _Running:
    """The callback that one thread runs, and where it was found to be."""

    thread_id: int
    places: Counter[tuple[str, ...]] = field(default_factory=Counter)


class Watch:
    """Of one process. The thread that looks where a long callback is begins with the first callback, as a process may
    have to fork before."""

    def __init__(self, path: str, limit_s: float, service: str) -> None:
        self._path, self._limit_s, self._service = path, limit_s, service
        self._running: dict[int, _Running] = {}
        self._pid = 0

    def install(self) -> None:
        """From now on all event loops of this process and its forks are watched."""
        run = asyncio.Handle._run
        thread_time, perf_counter, running = time.thread_time, time.perf_counter, self._running

        def watched(handle: Any) -> None:
            if self._pid != os.getpid():
                self._begin()
            callback, thread_id = handle._callback, threading.get_ident()
            now = running[thread_id] = _Running(thread_id)
            began, cpu_began = perf_counter(), thread_time()
            try:
                run(handle)
            finally:
                cpu_s = thread_time() - cpu_began
                running.pop(thread_id, None)
                if cpu_s > self._limit_s:
                    self._report(callback, cpu_s, perf_counter() - began, now)

        asyncio.Handle._run = watched  # type: ignore[method-assign]

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._write({"began": True})
        threading.Thread(target=self._sample_for_ever, name="loop watch", daemon=True).start()

    def _sample_for_ever(self) -> None:
        seen: dict[int, _Running] = {}
        while True:
            time.sleep(SAMPLE_S)
            frames = sys._current_frames()
            for thread_id, running in list(self._running.items()):
                if seen.get(thread_id) is running:  # it has lasted since the last look
                    running.places[tuple(stack_of(frames.get(thread_id)))] += 1
                seen[thread_id] = running

    def _report(self, callback: Any, cpu_s: float, wall_s: float, running: _Running) -> None:
        name, place = describe(callback)
        places = [list(stack) for stack, _ in running.places.most_common(3)]
        self._write({"callback": name, "place": place, "cpu_s": cpu_s, "wall_s": wall_s, "stacks": places})

    def _write(self, line: dict[str, object]) -> None:
        text = json.dumps({"service": self._service, "pid": os.getpid(), "at": time.time(), **line})
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, text.encode() + b"\n")  # one call: lines of several processes do not mix
        finally:
            os.close(fd)


def install_if_asked(service: str) -> None:
    """Watches this process when its environment says so; nothing happens otherwise."""
    path = os.environ.pop(FILE, "")
    if path:
        Watch(path, float(os.environ.pop(LIMIT, LIMIT_S)), service).install()
