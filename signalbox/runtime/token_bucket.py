"""How much of something may be taken: so much at once, and so much per second in the long run."""

from __future__ import annotations


class TokenBucket:
    """Fills evenly up to its size. What is larger than that may be taken when it is full, and what is known only
    afterwards is taken afterwards: the level falls below zero, and has to rise again first.

    Times are seconds of one clock that only rises.
    """

    __slots__ = ("_at_s", "level", "per_s", "size")

    def __init__(self, size: float, per_s: float, now: float) -> None:
        self.size, self.per_s = size, per_s
        self.level = size
        """What can be taken, as of the last `refill`; below zero: what has to come first."""
        self._at_s = now

    def refill(self, now: float) -> None:
        """Lets it fill for the time that has passed."""
        self.level = min(self.size, self.level + (now - self._at_s) * self.per_s)
        self._at_s = now

    def take(self, count: float) -> None:
        """Below zero if need be."""
        self.level -= count

    def wait_s(self, count: float = 0) -> float:
        """Seconds until `count` can be taken, as of the last `refill`; 0: now."""
        return max(0.0, (min(count, self.size) - self.level) / self.per_s)

    def resize(self, size: float, per_s: float) -> None:
        """Another limit; what was taken stays taken."""
        self.level += size - self.size
        self.size, self.per_s = size, per_s
