"""What a worker's next steps will take, as far as the last ones tell."""

from __future__ import annotations

import math

MEMORY_S = 10.0
"""Seconds after which a prompt token counts a third."""


class Forecast:
    """Step times as they were fitted, and how fast prompt tokens have come."""

    def __init__(self) -> None:
        self.token_s = 0.0
        """Seconds that one more token makes a step longer; 0: not known."""
        self.base_s = 0.0
        """Seconds of a step without any token; 0: not known."""
        self._tokens = self._seconds = 0.0
        self._seen = 0
        self._looked_at: float | None = None

    def look(self, num_prefill_tokens: int, now: float) -> None:
        """`num_prefill_tokens`: all that the worker has computed of prompts since it attached."""
        if self._looked_at is not None and now > self._looked_at:
            passed = now - self._looked_at
            decay = math.exp(-passed / MEMORY_S)
            self._tokens = self._tokens * decay + max(num_prefill_tokens - self._seen, 0)
            self._seconds = self._seconds * decay + passed
        self._seen, self._looked_at = num_prefill_tokens, now

    @property
    def prefill_share(self) -> float:
        """Share of its time that prompts have taken lately."""
        rate = self._tokens / self._seconds if self._seconds else 0.0
        return min(rate * self.token_s, 1.0)
