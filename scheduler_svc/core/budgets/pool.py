"""What is left of one limit of one key, and to whom parts of it are lent (docs/design.md, KB)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from signalbox.protocol.enums import BudgetKind
from signalbox.runtime.token_bucket import TokenBucket

SPARE_PART = 64
"""A loan of a limit per minute is at most this part of it larger than what was wanted: a second's worth, so that a
busy key is not asked for with every request."""
MAX_DEBT_MINUTES = 60
"""What has been used ahead is forgiven above this many minutes' worth: one wrong number of a frontend costs a key no
longer than that."""
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Report:
    """What a frontend says of a limit, as of its last report: BudgetReport of from_frontend.proto."""

    limit: int
    before: Before | None = None
    used: int = 0
    charged: int = 0
    returned: int = 0
    wanted: int = 0
    least: int = 0


@dataclass(frozen=True)
class Before:
    """How a frontend stands to a limit from before."""

    held: int
    """Lent, and neither used nor given back."""
    left: int
    """The most that the key has left in all, as far as the frontend knows."""


@dataclass(frozen=True)
class Loan:
    """The answer to a report that wants something."""

    lent: int
    left: int
    wait_s: float
    """When to ask again, in seconds; 0: nobody knows, or something was lent."""


class Pool:
    """One limit of one key. `level + num_lent <= limit` at every time (KB1); places of REQUESTS_AT_ONCE do not fill by
    themselves, what is per minute does."""

    def __init__(self, kind: BudgetKind, limit: int, now: float) -> None:
        self.is_rate = kind is not BudgetKind.REQUESTS_AT_ONCE
        self.num_lent = 0
        """What frontends have of it, as far as is known: none has more."""
        self._bucket = TokenBucket(limit, self._per_s(limit), now)
        """Its level is what can be lent."""
        self._held: dict[str, int] = {}
        """What each frontend has of it; the sum is num_lent."""
        self._until: dict[str, float] = {}
        """When what is lent to a frontend is forgotten, unless it says that it still has it; others are attached."""

    def _per_s(self, limit: int) -> float:
        return limit / 60 if self.is_rate else 0.0

    @property
    def left(self) -> int:
        """What the key has left in all, as of the last report: places that nobody has, or what is not used up; below
        zero: used ahead."""
        unused = self.num_lent if self.is_rate else 0
        return math.floor(self._bucket.level + unused + _ROUNDING)

    def is_whole(self, now: float) -> bool:
        """Nothing of it is lent or missing: one that is made anew is the same."""
        self._fill(now)
        return not self._held and self._bucket.level >= self._bucket.size

    def report(self, frontend: str, report: Report, now: float) -> None:
        """Takes in what a frontend has done."""
        self._fill(now)
        if report.limit != self._bucket.size:
            self._bucket.resize(report.limit, self._per_s(report.limit))
        if report.before is not None:
            self._resume(frontend, report.before)
        held = self._held.get(frontend, 0)
        self._hold(frontend, max(0, held - report.used - report.returned))
        self._bucket.take(report.charged)
        if self.is_rate:
            self._bucket.level += min(report.returned, max(0, held - report.used))
        self._bound()

    def lend(self, frontend: str, wanted: int, least: int) -> Loan:
        """As much of what is wanted as there is, and nothing when that is less than `least`. What is more than the
        whole limit per minute is lent when nothing is missing, and has to be paid back first; of places there are
        never more."""
        bucket = self._bucket
        least = max(1, min(least, wanted))
        needed = min(least, bucket.size) if self.is_rate else least
        if bucket.level + _ROUNDING < needed:
            wait_s = bucket.wait_s(needed) if self.is_rate else 0.0
            return Loan(0, self.left, wait_s)
        spare = int(bucket.size) // SPARE_PART if self.is_rate else 0
        lent = max(least, min(wanted + spare, math.floor(bucket.level + _ROUNDING)))
        if self.is_rate:
            bucket.take(lent)
        self._hold(frontend, self._held.get(frontend, 0) + lent)
        self._bound()
        return Loan(lent, self.left, 0.0)

    def leave(self, frontend: str, until: float) -> None:
        """What is lent to a frontend is forgotten at `until`, unless it reports what it still has."""
        if frontend in self._held:
            self._until[frontend] = until

    def check_integrity(self) -> None:
        """Raises AssertionError when the sums are wrong."""
        assert self.num_lent == sum(self._held.values())
        assert all(held > 0 for held in self._held.values())
        assert self._until.keys() <= self._held.keys()
        assert self._bucket.level + self.num_lent <= self._bucket.size + _ROUNDING * 10
        if not self.is_rate:
            assert self._bucket.level == self._bucket.size - self.num_lent

    def _resume(self, frontend: str, before: Before) -> None:
        """A frontend says how it stands, and what it knows of the key: this scheduler may be a new one (KB4)."""
        self._until.pop(frontend, None)
        self._hold(frontend, min(before.held, int(self._bucket.size)))
        self._bucket.level = min(self._bucket.level, before.left - self.num_lent)

    def _hold(self, frontend: str, held: int) -> None:
        self.num_lent += held - self._held.pop(frontend, 0)
        if held:
            self._held[frontend] = held
        else:
            self._until.pop(frontend, None)

    def _fill(self, now: float) -> None:
        for frontend in [name for name, until in self._until.items() if until <= now]:
            self._hold(frontend, 0)
        self._bucket.refill(now)
        self._bound()

    def _bound(self) -> None:
        """What is lent is part of the limit: it does not fill beyond that."""
        bucket = self._bucket
        most = bucket.size - self.num_lent
        if self.is_rate:
            least = -MAX_DEBT_MINUTES * bucket.size - self.num_lent
            bucket.level = max(min(bucket.level, most), least)
        else:
            bucket.level = most
