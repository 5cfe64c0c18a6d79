"""How long the steps of a worker take, against its own long run.

Looked at a few times a second, from counters that are there anyway. What a step should take is the largest of three
guesses, by the long-run time per step, per token, and per position that is read: too much rather than too little when
the kind of work changes, and a third of the truth at least where time is a sum of such parts. What is recent is not
part of the long run yet, so a worker that becomes slow is seen against what it was; while it is slow it is learned from
slowly, so that a change for good is believed in the end.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

RECENT_S = 5.0
"""What is recent, in seconds; more if it has fewer than RECENT_STEPS."""
RECENT_STEPS = 6
MEMORY_S = 60.0
"""Time spent in steps after which a sample counts a third."""
MIN_STEPS = 100
"""Steps in the long run before anything is said."""
ODD_RATIO = 4.0
"""Ratio to the usual time from which on steps are not what they were."""
ODD_WEIGHT = 0.1
"""Weight of samples that are odd, in the long run."""
FEW_STEPS = 16
"""Steps of a process below which its own speed is not known at all."""


class Work(NamedTuple):
    """What some steps together had to do."""

    num_steps: float
    num_tokens: float
    """Tokens computed: decode rows and prompt tokens."""
    num_read: float
    """Positions whose KV was read."""
    busy_s: float

    def plus(self, other: Work, weight: float = 1.0) -> Work:
        """Both, the other by its weight."""
        return Work(*(mine + weight * theirs for mine, theirs in zip(self, other, strict=True)))

    def times(self, factor: float) -> Work:
        """So many times as much."""
        return Work(*(value * factor for value in self))


NO_WORK = Work(0.0, 0.0, 0.0, 0.0)


@dataclass
class Pace:
    """How fast one worker process is, by what its steps took."""

    _long_run: Work = NO_WORK
    _recent: deque[tuple[float, Work]] = field(default_factory=deque)
    """The newest samples, by the time when they were looked at."""
    _num_learned: float = 0.0
    """Steps that were learned from."""

    def look(self, work: Work, now: float) -> None:
        """So much work was reported since the last look."""
        if work.num_steps:
            self._recent.append((now, work))
        steps = sum(each.num_steps for _, each in self._recent)
        while len(self._recent) > 1 and now - self._recent[0][0] > RECENT_S:
            if steps - self._recent[0][1].num_steps < RECENT_STEPS:
                break
            _, old = self._recent.popleft()
            steps -= old.num_steps
            self._learn(old)

    def _learn(self, work: Work) -> None:
        is_odd = self._num_learned >= MIN_STEPS and work.busy_s >= ODD_RATIO * self.predict(work)
        weight = ODD_WEIGHT if is_odd else 1.0
        self._long_run = self._long_run.times(math.exp(-weight * work.busy_s / MEMORY_S)).plus(work, weight)
        self._num_learned += work.num_steps

    def predict(self, work: Work) -> float:
        """How long so much work would take by the long run, in seconds, or less."""
        return seconds_of(work, self._long_run)

    def ratio(self, now: float) -> float | None:
        """How many times as long as in the long run recent steps take, in each half of the recent time at least; None:
        there is too little to say."""
        if self._num_learned < MIN_STEPS or not self._recent or now - self._recent[-1][0] > RECENT_S:
            return None
        first = self._recent[0][0]
        if now - first < 0.9 * RECENT_S:
            return None
        middle = (first + self._recent[-1][0]) / 2
        halves = [NO_WORK, NO_WORK]
        for at, work in self._recent:
            index = int(at > middle)
            halves[index] = halves[index].plus(work)
        predicted = [self.predict(half) for half in halves]
        if not all(predicted):
            return None
        return min(half.busy_s / expected for half, expected in zip(halves, predicted, strict=True))

    def forget_recent(self) -> None:
        """What is recent says nothing any more."""
        self._recent.clear()

    @property
    def known(self) -> Work | None:
        """The long run, or everything so far where that is short; None below FEW_STEPS."""
        if self._num_learned >= MIN_STEPS:
            return self._long_run
        everything, num_steps = self._long_run, self._num_learned
        for _, work in self._recent:
            everything, num_steps = everything.plus(work), num_steps + work.num_steps
        return everything if num_steps >= FEW_STEPS else None


def seconds_of(work: Work, known: Work) -> float:
    """The largest of the guesses for `work`, in seconds, by what `known` work took."""
    pairs = zip(work[:3], known[:3], strict=True)
    return max((amount * known.busy_s / total for amount, total in pairs if total > 0), default=0.0)
