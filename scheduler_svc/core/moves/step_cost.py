"""What a worker's steps take: so long each, and so long per token, fitted to counters that are there anyway."""

from __future__ import annotations

import math

import numpy as np

from scheduler_svc.core.state.worker import Worker

MEMORY_LOOKS = 300.0
"""Looks after which a sample counts a third."""
MIN_LOOKS = 20
"""Looks with steps in them before anything is said."""
MIN_SPREAD = 4.0
"""Spread of the tokens per step, as their variance, below which nothing is said: all steps were alike."""


class StepCost:
    """`seconds per step + seconds per token * tokens`, by least squares over the looks at one worker."""

    def __init__(self) -> None:
        self._sums = np.zeros(5)
        """Sums of weights, tokens, seconds, tokens squared, tokens times seconds: of mean steps, by their number."""
        self._seen = (0, 0, 0)
        self._num_looks = 0

    def look(self, worker: Worker) -> None:
        """Learns from what was reported since the last look."""
        stats = worker.stats
        seen = (stats.num_reported, stats.num_output_tokens + stats.num_prefill_tokens, stats.step_us)
        steps, tokens, step_us = (new - old for new, old in zip(seen, self._seen, strict=True))
        self._seen = seen
        if steps <= 0 or tokens < 0 or step_us <= 0:  # nothing, or its counters began anew
            return
        mean_tokens, mean_s = tokens / steps, step_us / 1e6 / steps
        sample = np.array([1.0, mean_tokens, mean_s, mean_tokens**2, mean_tokens * mean_s])
        self._sums = self._sums * math.exp(-1 / MEMORY_LOOKS) + steps * sample
        self._num_looks += 1

    @property
    def token_s(self) -> float:
        """Seconds that one more token makes a step longer; 0: not known."""
        weight, tokens, seconds, squares, products = self._sums.tolist()
        if self._num_looks < MIN_LOOKS:
            return 0.0
        variance = squares / weight - (tokens / weight) ** 2
        if variance < MIN_SPREAD:
            return 0.0
        return float(max((products / weight - tokens * seconds / weight**2) / variance, 0.0))
