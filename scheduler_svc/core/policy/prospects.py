"""Whether the first token of a waiting request can still come in time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler_svc.core.request import Request

WINDOW = 32
"""Steps that are remembered."""
LEAST_SHARE = 0.25
"""Steps with fewer prompt tokens than this share of the budget say little of how fast prompts are computed."""


class Prospects:
    """An estimate for a request that would start now: the step that runs has to end, then its prompt is computed as
    fast as prompts were lately, decode rows beside them. Before anything was measured, that takes no time.

    `num_cached` says how many tokens of a request need no computing. It is asked once per request, when its deadline is
    so near that it matters.
    """

    def __init__(self, num_cached: Callable[[Request], int]) -> None:
        self.now = 0.0
        self._num_cached = num_cached
        self._steps: deque[tuple[int, float]] = deque(maxlen=WINDOW)
        self._step_s = 0.0
        self._token_s = 0.0

    def observe(self, num_prefill_tokens: int, budget: int, duration_s: float) -> None:
        """A step with so many prompt tokens, of `budget` that it had room for, took so long."""
        if num_prefill_tokens < LEAST_SHARE * budget or duration_s <= 0:
            return
        self._steps.append((num_prefill_tokens, duration_s))
        total_s = sum(seconds for _, seconds in self._steps)
        self._step_s = total_s / len(self._steps)
        self._token_s = total_s / sum(tokens for tokens, _ in self._steps)

    def can_be_met(self, request: Request) -> bool:
        """The deadline of `request`, which has one, would be met if it started now."""
        assert request.deadline is not None
        left_s = request.deadline - self.now
        if left_s < self._step_s:
            return False
        if left_s >= self._step_s + request.num_known_tokens * self._token_s:
            return True
        if request.num_cached_guess is None:
            request.num_cached_guess = self._num_cached(request)
        num_computed = request.num_known_tokens - request.num_cached_guess
        return left_s >= self._step_s + num_computed * self._token_s
