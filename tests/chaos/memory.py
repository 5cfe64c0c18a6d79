"""Resident memory of services over time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field

import psutil

from tests.chaos.ring import Ring

EVERY_S = 1.0
MEGABYTE = 1 << 20


@dataclass
class Memory:
    """Samples of every service of a ring, children included, in MiB."""

    ring: Ring
    samples: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    """Seconds of the monotonic clock, and MiB by service."""

    async def watch(self) -> None:
        """Samples until cancelled."""
        while True:
            services = self.ring.services.values()
            self.samples.append((time.monotonic(), {s.name: _mebibytes(s.pid) for s in services if s.runs}))
            await asyncio.sleep(EVERY_S)

    def over(self, name: str, start: float, end: float, num_points: int = 5) -> list[float]:
        """Means over equal parts of the time from `start` to `end`."""
        width = (end - start) / num_points
        points = []
        for index in range(num_points):
            first = start + index * width
            part = [by_name[name] for at, by_name in self.samples if first <= at < first + width]
            points.append(round(sum(part) / max(1, len(part)), 1))
        return points


def _mebibytes(pid: int) -> float:
    total = 0.0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += one.memory_info().rss / MEGABYTE
    return total
