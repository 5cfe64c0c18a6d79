"""The limits of all keys that frontends ask for, by key and kind."""

from __future__ import annotations

from scheduler_svc.core.budgets.pool import Loan, Pool, Report
from signalbox.protocol.enums import BudgetKind

MAX_POOLS = 30_000
"""Limits that are known at one time; above it the one that was not asked for the longest is forgotten."""
Name = tuple[str, BudgetKind]
"""A limit's name: the key's id, and which."""
_LOOK_AT = 2


class Ledger:
    """Lends limits of keys to frontends. Times are seconds of one clock that only rises."""

    def __init__(self, hold_s: float, max_pools: int = MAX_POOLS) -> None:
        """hold_s: how long what is lent to a frontend without a link counts as lent."""
        self._hold_s = hold_s
        self._max_pools = max_pools
        self._pools: dict[Name, Pool] = {}
        """The one that was neither asked for nor looked at for the longest comes first."""

    def __len__(self) -> int:
        """Limits that are known."""
        return len(self._pools)

    def report(self, frontend: str, name: Name, report: Report, now: float) -> Loan | None:
        """Takes in what a frontend has done with a limit, and lends what it wants. None: it wants nothing."""
        pool = self._pools.pop(name, None)
        if pool is None:
            pool = Pool(name[1], report.limit, now)
        self._pools[name] = pool
        pool.report(frontend, report, now)
        self._forget_some(now)
        return pool.lend(frontend, report.wanted, report.least) if report.wanted else None

    def leave(self, frontend: str, now: float) -> None:
        """A frontend's link has ended, or it has begun another one: what it has it says again."""
        for pool in self._pools.values():
            pool.leave(frontend, now + self._hold_s)

    def _forget_some(self, now: float) -> None:
        """Looks at those that were not asked for the longest: whole ones are as good as none."""
        for _ in range(min(_LOOK_AT, len(self._pools) - 1)):
            name = next(iter(self._pools))
            pool = self._pools.pop(name)
            if len(self._pools) < self._max_pools and not pool.is_whole(now):
                self._pools[name] = pool

    def check_integrity(self) -> None:
        """Raises AssertionError when a sum is wrong."""
        for pool in self._pools.values():
            pool.check_integrity()
