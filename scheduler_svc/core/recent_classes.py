"""Classes whose requests have started lately on a worker: more of them are expected."""

from __future__ import annotations

import math

LATELY_S = 10.0


class RecentClasses:
    """When requests started last, by the class that they came with."""

    def __init__(self) -> None:
        self._started_at: dict[int, float] = {}

    def started(self, rank: int, now: float) -> None:
        """A request that came with this class starts."""
        self._started_at[rank] = now

    def highest(self, now: float) -> float:
        """The highest class that has started a request within `LATELY_S`; `inf` when none has."""
        old = [rank for rank, at in self._started_at.items() if now - at > LATELY_S]
        for rank in old:
            del self._started_at[rank]
        return min(self._started_at, default=math.inf)
