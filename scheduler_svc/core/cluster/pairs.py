"""Pairs of workers between which reads have failed: each is left out for a time (docs/design.md, HO21, PB9)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from scheduler_svc.core.state.requests.evidence import Process

FIRST_S = 1.0
MOST_S = 60.0
"""For how long a pair is left out; twice as long after each failure in a row, from the first to the second."""


class Pair(NamedTuple):
    """Two worker processes, of which one reads what the other has."""

    source: Process
    target: Process


class LeftOutPair(NamedTuple):
    """A pair as operators see it."""

    source_id: str
    target_id: str
    reason: str


@dataclass
class _Trouble:
    reason: str
    until: float
    pause_s: float


class PairTroubles:
    """Pairs whose last read failed. `now` as everywhere."""

    def __init__(self, effect: str) -> None:
        """effect: what is not done between the two, as a clause."""
        self._effect = effect
        self._troubles: dict[Pair, _Trouble] = {}
        self.news: list[str] = []
        """Sentences for the operator. The caller that logs them clears the list."""

    @property
    def has_any(self) -> bool:
        """Some pair is left out, or to be tried again."""
        return bool(self._troubles)

    def left_out(self) -> list[LeftOutPair]:
        """Every pair in trouble, with those that may be tried again."""
        return [
            LeftOutPair(pair.source.worker_id, pair.target.worker_id, trouble.reason)
            for pair, trouble in self._troubles.items()
        ]

    def may_try(self, pair: Pair, now: float, num_open: int) -> bool:
        """A read may begin. After a failure and its pause that is one at a time; `num_open`: those under way."""
        trouble = self._troubles.get(pair)
        return trouble is None or (now >= trouble.until and not num_open)

    def failed(self, pair: Pair, reason: str, now: float) -> None:
        """A read has failed, by the target's word or because it took too long. What fails during the pause was begun
        before it: it is the same failure."""
        trouble = self._troubles.get(pair)
        if trouble is None:
            self._troubles[pair] = _Trouble(reason, now + FIRST_S, FIRST_S)
            self.news.append(
                f"worker {pair.target.worker_id} cannot read from worker {pair.source.worker_id}: {self._effect} for"
                f" {FIRST_S:g} s, and for up to {MOST_S:g} s if it fails again ({reason})"
            )
        elif now >= trouble.until:
            trouble.reason, trouble.pause_s = reason, min(2 * trouble.pause_s, MOST_S)
            trouble.until = now + trouble.pause_s

    def succeeded(self, pair: Pair) -> None:
        """A read has ended well."""
        if self._troubles and self._troubles.pop(pair, None) is not None:
            self.news.append(
                f"worker {pair.target.worker_id} reads from worker {pair.source.worker_id} again"
            )

    def forget_old(self, processes: Collection[Process], is_open: Collection[Pair], now: float) -> None:
        """Forgets pairs of which a process is gone, and those that nobody has tried for as long as they were left
        out; the operator is told of it. `is_open`: pairs with a read under way."""
        for pair, trouble in list(self._troubles.items()):
            is_idle = pair not in is_open and now >= trouble.until + trouble.pause_s
            gone = next((process for process in pair if process not in processes), None)
            if is_idle or gone is not None:
                del self._troubles[pair]
                why = f"a process of worker {gone.worker_id} is gone" if gone else "nobody has tried since"
                self.news.append(
                    f"worker {pair.target.worker_id} may read from worker {pair.source.worker_id} again: {why}"
                )
