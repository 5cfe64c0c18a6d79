"""Times of a device: by CUDA's events, or by the wall clock on a CPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch


def synchronize(device: torch.device) -> None:
    """Waits for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Timer:
    """The time between `begin` and `end` on the device."""

    def __init__(self, device: torch.device) -> None:
        self._events: list[torch.cuda.Event] = []
        if device.type == "cuda":
            make: Any = torch.cuda.Event
            self._events = [make(enable_timing=True) for _ in range(2)]
        self._times = [0.0, 0.0]

    def begin(self) -> None:
        """What is launched from now on counts."""
        self._mark(0)

    def end(self) -> None:
        """What is launched from now on does not count."""
        self._mark(1)

    @property
    def ms(self) -> float:
        """Waits for the end."""
        if not self._events:
            return (self._times[1] - self._times[0]) * 1e3
        self._events[1].synchronize()
        return float(self._events[0].elapsed_time(self._events[1]))

    def _mark(self, which: int) -> None:
        if self._events:
            self._events[which].record()
        else:
            self._times[which] = time.perf_counter()


def device_ms(device: torch.device, work: Callable[[], object], times: int) -> float:
    """Milliseconds of one call, of so many back to back behind two that do not count."""
    for _ in range(2):
        work()
    synchronize(device)
    timer = Timer(device)
    timer.begin()
    for _ in range(times):
        work()
    timer.end()
    return timer.ms / times
