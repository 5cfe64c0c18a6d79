"""Requests of one model that wait for a worker, in the order of the policy in force.

Classes stand outside, tenants inside a class, requests inside a tenant. A request rises by one class for every
`aging_s` seconds that it waits; risen requests stand before those that belong to the class. Of an account, the oldest
request rises first.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Generator, Iterator

from scheduler_svc.core.queue.class_queue import ClassQueue
from scheduler_svc.core.queue.ledger import Ledger
from scheduler_svc.core.queue.ttft_estimator import TtftEstimator
from scheduler_svc.core.queue.waiting_account import WaitingAccount
from scheduler_svc.core.state.policy_spec import PolicySpec
from scheduler_svc.core.state.requests.order import classes_risen
from scheduler_svc.core.state.requests.request import Request, RequestStatus
from scheduler_svc.core.state.requests.tenants import Tenant

MAX_RISES = 16
"""Accounts whose level is looked at again per step; more of them wait for the next step."""
Aged = tuple[int, tuple[int, int], int, WaitingAccount]
"""(level, arrival of the oldest request, index, account)"""


class WaitingQueue:
    """Waiting requests by class and tenant."""

    def __init__(
        self, policy: PolicySpec, aging_s: float, ledger: Ledger, ttft_estimator: TtftEstimator
    ) -> None:
        self.classes: dict[int, ClassQueue] = {}
        self._policy, self._ledger = policy, ledger
        self.ttft_estimator = ttft_estimator
        """What estimates first tokens; asked when the policy goes by deadlines."""
        self._aging_s = aging_s if policy.has_classes else 0.0
        self._aged: list[Aged] = []
        """Accounts whose oldest request has waited for more than a class's time, best level first."""
        self._rises: list[tuple[float, int, WaitingAccount]] = []
        self._num_waiting = 0
        self._now = 0.0
        self._level: int | None = None
        """Classes below it are suspended: whole, so that those who wait there cost nothing. None: no class is."""
        self._suspended_at: dict[int, float] = {}
        """When classes were suspended, of those that had members then."""

    def __len__(self) -> int:
        return self._num_waiting

    def __iter__(self) -> Iterator[Request]:
        """All that wait, in no particular order."""
        for priority in sorted(self.classes):
            for account in self.classes[priority].accounts.values():
                yield from account.requests

    def open(self, priority: int, tenant: Tenant) -> WaitingAccount:
        """The account of a tenant in a class."""
        members = self.classes.get(priority)
        if members is None:
            members = self.classes[priority] = ClassQueue(
                self._ledger,
                self._policy.is_fair,
                self.ttft_estimator if self._policy.has_deadlines else None,
            )
        account = members.accounts.get(tenant.name)
        if account is None:
            index = self._ledger.open(tenant.limits.weight)
            account = WaitingAccount(priority, tenant, index, members.new_queue())
            members.accounts[tenant.name] = account
        return account

    def account_of(self, request: Request) -> WaitingAccount:
        """The account that `request` was assigned to."""
        account = request.entry.account
        assert account is not None
        return self.classes[account.priority].accounts[account.tenant.name]

    def push(self, request: Request, now: float) -> None:
        """Adds a request to its account."""
        account, self._now, self.ttft_estimator.now = self.account_of(request), now, now
        was_empty = not len(account.requests)
        account.requests.push(request)
        self._num_waiting += 1
        self.classes[account.priority].enter(account, request, was_empty)
        if was_empty:
            self._set_level(account, now)

    def remove(self, request: Request) -> None:
        """Takes a request out, wherever it stands."""
        account = self.account_of(request)
        was_oldest = account.requests.oldest() is request
        account.requests.remove(request)
        self._num_waiting -= 1
        self.classes[account.priority].left(account)
        if was_oldest:
            self._set_level(account, self._now)

    def wake(self, tenant: Tenant) -> None:
        """A limit of the tenant's may have room again."""
        for members in self.classes.values():
            members.wake(tenant)

    def suspends(self, priority: int) -> bool:
        """Requests of the class do not start now."""
        return self._level is not None and priority > self._level

    def suspend(self, level: int | None, now: float) -> list[Request]:
        """Passes over the classes below `level` from now on; None: none. Returns the requests that are suspended with
        it, or no longer."""
        before = {priority for priority in self.classes if self.suspends(priority)}
        self._level, self._now = level, now
        changed: list[Request] = []
        for priority, members in self.classes.items():
            if self.suspends(priority) == (priority in before):
                continue
            if priority in before:
                since = self._suspended_at.pop(priority, 0.0)
            else:
                since = self._suspended_at[priority] = now
            for account in members.accounts.values():
                changed += self._change(account, since, now)
        return changed

    def _change(self, account: WaitingAccount, since: float, now: float) -> list[Request]:
        """Whoever was suspended at `since` has not aged from then on."""
        requests = list(account.requests)
        for request in requests:
            request.suspended = self.suspends(account.priority)
            if request.entry.waits_since is not None:
                request.entry.waits_since += now - max(since, request.entry.waits_since)
        self._set_level(account, now)
        return requests

    def walk(self, now: float) -> Generator[Request, None, None]:
        """Waiting requests in order, those of suspended classes apart, each with its effective priority. A request that
        is taken has left the queue before the next one is asked for. To be closed."""
        self._now = self.ttft_estimator.now = now
        self._rise(now)
        passed: set[int] = set()
        seen: Aged | None = None
        for priority in sorted(self.classes):
            if self.suspends(priority):
                return
            while (entry := self._next_aged(seen, priority)) is not None:
                seen = entry
                request = entry[3].requests.oldest()
                if request is not None and entry[3].tenant.throttled_by(now) is None:
                    request.entry.effective_priority = entry[0]
                    yield request
                    if request.status is RequestStatus.WAITING:
                        passed.add(id(request))
            members = self.classes[priority].walk(now)
            for request in members:
                if id(request) not in passed:
                    request.entry.effective_priority = priority
                    yield request
            members.close()

    def _next_aged(self, seen: Aged | None, priority: int) -> Aged | None:
        """The next account, after `seen`, whose oldest request has risen to the class or above."""
        if not self._aged:
            return None
        index = bisect_right(self._aged, seen) if seen is not None else 0
        if index == len(self._aged) or self._aged[index][0] > priority:
            return None
        return self._aged[index]

    # -- aging --

    def _rise(self, now: float) -> None:
        for _ in range(MAX_RISES):
            if not self._rises or self._rises[0][0] > now:
                return
            at, _, account = heapq.heappop(self._rises)
            if account.ages_at == at:
                self._set_level(account, now)

    def _set_level(self, account: WaitingAccount, now: float) -> None:
        """Puts the account where its oldest request belongs by now."""
        if not self._aging_s:
            return
        if account.aged is not None:
            del self._aged[bisect_left(self._aged, (*account.aged, account.index, account))]
            account.aged = None
        oldest = account.requests.oldest()
        if oldest is None or oldest.entry.waits_since is None or self.suspends(account.priority):
            account.ages_at = None
            return
        level = account.priority - classes_risen(oldest.entry.waits_since, now, self._aging_s)
        if level < account.priority:
            account.aged = (level, oldest.arrival)
            insort(self._aged, (level, oldest.arrival, account.index, account))
        rises_at = oldest.entry.waits_since + (account.priority - level + 1) * self._aging_s
        if account.ages_at != rises_at:
            account.ages_at = rises_at
            heapq.heappush(self._rises, (rises_at, account.index, account))
