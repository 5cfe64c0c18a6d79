"""Whether a disk that has failed is left alone, and for how long."""

from __future__ import annotations

FIRST_S = 5.0
MOST_S = 300.0


class Breaker:
    """Off for a time after each failure, twice as long each time in a row. Pure: the caller has the clock."""

    def __init__(self) -> None:
        self._until = 0.0
        self._pause_s = FIRST_S
        self.num_failures = 0

    def is_off(self, now: float) -> bool:
        """The disk is to be left alone."""
        return now < self._until

    def fail(self, now: float) -> bool:
        """Something has failed. True: that is news, for the disk was on."""
        self.num_failures += 1
        if self.is_off(now):
            return False
        self._until = now + self._pause_s
        self._pause_s = min(self._pause_s * 2, MOST_S)
        return True

    def succeed(self) -> None:
        """Something has been read, or written."""
        self._pause_s = FIRST_S
