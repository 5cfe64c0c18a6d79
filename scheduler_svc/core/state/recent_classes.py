"""Classes whose requests have started lately on a worker: more of them are expected."""

from __future__ import annotations

import math

LATELY_S = 10.0


class RecentClasses:
    """When requests of each class started last, by the class that they came with."""

    def __init__(self) -> None:
        self._started_at: dict[int, float] = {}
        """The class that started one longest ago first."""

    def started(self, priority: int, now: float) -> None:
        """A request that came with this class starts."""
        self._started_at.pop(priority, None)
        self._started_at[priority] = now
        self._forget_old(now)

    def highest(self, now: float) -> float:
        """The highest class that has started a request within `LATELY_S`; `inf` when none has."""
        self._forget_old(now)
        return min(self._started_at, default=math.inf)

    def _forget_old(self, now: float) -> None:
        while self._started_at:
            priority, at = next(iter(self._started_at.items()))
            if now - at <= LATELY_S:
                return
            del self._started_at[priority]
