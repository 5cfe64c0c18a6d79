"""Tells the log how far something has come that takes a while."""

from __future__ import annotations

import logging
import time

logger = logging.getLogger(__name__)
MOST_LINES = 8


class Progress:
    """Counts parts of a whole; logs a few lines in all, however many parts there are."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._count = 0
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Time since it began."""
        return time.monotonic() - self._started

    def end(self, part: str) -> None:
        """The next part is done; it has a name to be logged."""
        self._count += 1
        lines_before, lines = ((n * MOST_LINES) // self._total for n in (self._count - 1, self._count))
        if lines > lines_before:
            logger.info("%s %d/%d after %.1f s: %s", self._what, self._count, self._total, self.seconds, part)
