"""Whether the first token of a waiting request can still come in time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from statistics import median_low

from scheduler_svc.core.state.requests.request import Request

WINDOW = 32
"""Most steps that are remembered."""
MEMORY_S = 60.0
"""Seconds for which steps are remembered."""
LEAST_SHARE = 0.25
"""Steps with fewer prompt tokens than this share of the budget say little of how fast prompts are computed."""


class TtftEstimator:
    """An estimate for a request that would start now: the step that runs has to end, then its prompt is computed as
    fast as prompts were lately, decode rows beside them. Before anything was measured, that takes no time. Medians are
    taken, for a first step that compiles kernels says nothing of those that follow.

    `num_cached` says how many tokens of a request need no computing. It is asked once per request, when its deadline is
    so near that it matters.
    """

    def __init__(self, num_cached: Callable[[Request], int]) -> None:
        self.now = 0.0
        self._num_cached = num_cached
        self._steps: deque[tuple[float, int, float]] = deque(maxlen=WINDOW)
        """The newest steps: about when each was reported, its prompt tokens, its seconds."""
        self._step_s = 0.0
        self._token_s = 0.0

    def observe(self, num_prefill_tokens: int, budget: int, duration_s: float) -> None:
        """A step with so many prompt tokens, of `budget` that it had room for, took so long."""
        if num_prefill_tokens < LEAST_SHARE * budget or duration_s <= 0:
            return
        self._steps.append((self.now, num_prefill_tokens, duration_s))
        self._estimate()

    def can_be_met(self, request: Request) -> bool:
        """The deadline of `request`, which has one, would be met if it started now."""
        assert request.entry.deadline is not None
        if self._steps and self._steps[0][0] < self.now - MEMORY_S:
            self._estimate()
        left_s = request.entry.deadline - self.now
        if left_s < self._step_s:
            return False
        if left_s >= self._step_s + request.num_known_tokens * self._token_s:
            return True
        if request.entry.num_cached_guess is None:
            request.entry.num_cached_guess = self._num_cached(request)
        num_computed = request.num_known_tokens - request.entry.num_cached_guess
        return left_s >= self._step_s + num_computed * self._token_s

    def _estimate(self) -> None:
        while self._steps and self._steps[0][0] < self.now - MEMORY_S:
            self._steps.popleft()
        self._step_s = median_low([seconds for _, _, seconds in self._steps] or [0.0])
        self._token_s = median_low([seconds / tokens for _, tokens, seconds in self._steps] or [0.0])
