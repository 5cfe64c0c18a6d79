"""How many threads of the CPU a step gets: few tokens wait for the memory, many for the arithmetic."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

FEW_TOKENS = 8
"""A step of so many query tokens takes hardly longer than one token: the time in which the weights are read."""
WORTH = 1.2
"""More threads have to be faster by this factor: they share the cores with everything else that runs."""
ROUNDS = 5


@dataclass(frozen=True)
class StepThreads:
    """Threads for steps of few and of many query tokens."""

    few: int
    many: int

    def of(self, num_tokens: int) -> int:
        """Threads for a step of `num_tokens` query tokens."""
        return self.few if num_tokens <= FEW_TOKENS else self.many


def choose_threads(most: int, run_one_token: Callable[[], object]) -> StepThreads:
    """Measures a step of one token: one core may read as fast as the memory goes, or be far from it."""
    counts = sorted({1 << power for power in range(most.bit_length())} | {most})
    seconds = {count: _fastest(count, run_one_token) for count in counts} if most > 1 else {1: 0.0}
    enough = min(seconds.values()) * WORTH
    return StepThreads(few=min(count for count in counts if seconds[count] <= enough), many=most)


def _fastest(threads: int, run: Callable[[], object]) -> float:
    torch.set_num_threads(threads)
    run()
    durations = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        run()
        durations.append(time.perf_counter() - started)
    return min(durations)
