"""Lines of a log that somebody else decides the number of: so many, and what is left out is counted."""

from __future__ import annotations

import time
from collections.abc import Callable

from signalbox.runtime.token_bucket import TokenBucket

LINES_PER_S = 10.0
MAX_LINES = 100
"""At a time: whoever makes up keys or calls does not fill the disk."""


class BoundedLines:
    """How many more may be written."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines = TokenBucket(MAX_LINES, LINES_PER_S, clock())
        self._num_left_out = 0

    def take(self) -> int | None:
        """The number of lines that were left out ahead of this one; None: this one is left out, too."""
        self._lines.refill(self._clock())
        if self._lines.wait_s(1):
            self._num_left_out += 1
            return None
        self._lines.take(1)
        left_out, self._num_left_out = self._num_left_out, 0
        return left_out
