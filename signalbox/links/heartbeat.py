"""Who is still there: both ends of every link say something at least every HEARTBEAT_S (docs/liveness.md, H1 to H3)."""

from __future__ import annotations

import math

HEARTBEAT_S = 0.25
"""Longest time between two messages of a live end of a link, in seconds."""
STALL_S = 2 * HEARTBEAT_S
"""Whoever has not looked for longer stood still itself, and reads what has arrived for as long before it judges."""


class Silence:
    """How long the other end of a link has said nothing, seen by a loop that may itself have stood still.

    `now` is any clock that only rises, in seconds. `is_silent` is to be asked about every HEARTBEAT_S.
    """

    def __init__(self, limit_s: float, now: float) -> None:
        """`limit_s`: from when on the other end counts as silent."""
        self._limit_s = limit_s
        self._heard_at = self._looked_at = self._judged_from = now

    def heard(self, now: float) -> None:
        """The other end has said something."""
        self._heard_at = now

    def lasts_s(self, now: float) -> float:
        """Since when nothing was heard."""
        return now - self._heard_at

    def is_silent(self, now: float) -> bool:
        """The other end is silent. After a stall of our own what has arrived is read first."""
        if now - self._looked_at > STALL_S:
            self._judged_from = now + STALL_S
        self._looked_at = now
        return now >= self._judged_from and now - self._heard_at >= self._limit_s


class Attention:
    """Whether a loop that judges several links has been looking all the time, or stood still itself.

    `is_whole` is to be asked about every HEARTBEAT_S.
    """

    def __init__(self) -> None:
        self._looked_at: float | None = None
        self._judged_from = -math.inf

    def is_whole(self, now: float) -> bool:
        """Others may be judged. After a stall of our own what has arrived is read first."""
        if self._looked_at is not None and now - self._looked_at > STALL_S:
            self._judged_from = now + STALL_S
        self._looked_at = now
        return now >= self._judged_from
