"""How many threads of the CPU a step gets: few tokens wait for the memory, many for the arithmetic."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from statistics import median

import torch

FEW_TOKENS = 8
"""A step of so many query tokens takes hardly longer than one token: the time in which the weights are read."""
WORTH = 1.05
"""More threads have to be faster by this factor: they share the cores with everything else that runs. (With 1.2 one
stream of int4 fell to one thread on a machine where two made it 7 to 20 % faster: docs/performance.md.)"""
FEWEST_ROUNDS, MOST_ROUNDS, MOST_S = 3, 20, 1.0
"""How often it is measured at load: within a second, unless three rounds take longer."""
TRIAL_STEPS = 6
"""Steps that are compared, before and in a trial of another number of threads."""
SOONEST, LATEST = 128, 4096
"""Steps between two trials, which become rarer as long as they change nothing."""


class StepThreads:
    """Threads for steps of few and of many query tokens.

    What was measured at load may have been a moment at which the machine was somebody else's. So steps of few tokens
    go on being measured, and now and then some are run with the next lower or higher number of threads. Results do
    not depend on it.
    """

    def __init__(self, counts: Sequence[int], few: int) -> None:
        """counts: numbers of threads to choose from, ascending; the highest one is for steps of many tokens. few: that
        a step of few tokens gets at first, one of them."""
        self._counts = tuple(counts)
        self.few, self.many = few, self._counts[-1]
        self._recent: deque[float] = deque(maxlen=TRIAL_STEPS)  # seconds of steps of few tokens
        self._trial: int | None = None
        self._tried: list[float] = []
        self._goes_up = True
        self._steps, self._wait = 0, SOONEST

    def of(self, num_tokens: int) -> int:
        """Threads for a step of `num_tokens` query tokens."""
        if num_tokens > FEW_TOKENS:
            return self.many
        return self.few if self._trial is None else self._trial

    def took(self, num_tokens: int, seconds: float) -> bool:
        """Notes how long the step took that `of` was asked about last. True when few tokens get another number now."""
        if num_tokens > FEW_TOKENS or len(self._counts) == 1:
            return False
        if self._trial is not None:
            self._tried.append(seconds)
            return len(self._tried) > TRIAL_STEPS and self._end_trial(self._trial)
        self._recent.append(seconds)
        self._steps += 1
        if self._steps >= self._wait:
            self._trial = self._neighbour()
        return False

    def _neighbour(self) -> int:
        """The number of threads above or below, in turns."""
        at, last = self._counts.index(self.few), len(self._counts) - 1
        self._goes_up = at == 0 or (at < last and not self._goes_up)
        return self._counts[at + 1 if self._goes_up else at - 1]

    def _end_trial(self, trial: int) -> bool:
        # Threads that were asleep have to be woken in the first one.
        tried, before = median(self._tried[1:]), median(self._recent)
        is_better = tried * WORTH < before if trial > self.few else tried <= before * WORTH
        if is_better:
            self.few = trial
        self._wait = SOONEST if is_better else min(2 * self._wait, LATEST)
        self._trial, self._steps = None, 0
        self._tried.clear()
        self._recent.clear()
        return is_better


def choose_threads(most: int, run_one_token: Callable[[], object]) -> StepThreads:
    """Measures a step of one token: one core may read as fast as the memory goes, or be far from it."""
    counts = sorted({1 << power for power in range(most.bit_length())} | {most})
    seconds = _fastest(counts, run_one_token) if most > 1 else {1: 0.0}
    enough = min(seconds.values()) * WORTH
    return StepThreads(counts, few=min(count for count in counts if seconds[count] <= enough))


def _fastest(counts: Sequence[int], run: Callable[[], object]) -> dict[int, float]:
    """Seconds of the fastest step with each number of threads; in turns, as it may be another's for a while."""
    seconds = dict.fromkeys(counts, float("inf"))
    give_up = time.perf_counter() + MOST_S
    for number in range(MOST_ROUNDS):
        if number >= FEWEST_ROUNDS and time.perf_counter() > give_up:
            break
        for count in counts:
            torch.set_num_threads(count)
            run()  # the threads that it needs are awake now
            started = time.perf_counter()
            run()
            seconds[count] = min(seconds[count], time.perf_counter() - started)
    return seconds
