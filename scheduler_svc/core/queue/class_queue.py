"""The accounts of one class: whose turn is it."""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterator

from scheduler_svc.core.queue.deadline_queue import DeadlineQueue, LateQuota
from scheduler_svc.core.queue.ledger import Ledger
from scheduler_svc.core.queue.sorted_queue import ArrivalQueue, Key
from scheduler_svc.core.queue.ttft_estimator import TtftEstimator
from scheduler_svc.core.queue.waiting_account import WaitingAccount
from scheduler_svc.core.state.requests.request import Request, RequestStatus
from scheduler_svc.core.state.requests.tenants import Tenant


class ClassQueue:
    """Accounts with waiting requests in a heap. Keys only rise while an account stands in it, so an entry is looked at
    again only when it comes to the top: what runs costs nothing here."""

    def __init__(self, ledger: Ledger, is_fair: bool, ttft_estimator: TtftEstimator | None) -> None:
        """`ttft_estimator` of deadlines, when they decide the order inside a tenant."""
        self.accounts: dict[str, WaitingAccount] = {}
        """The accounts by tenant, idle ones too until they are forgotten."""
        self._ledger = ledger
        self._is_fair, self._ttft_estimator = is_fair, ttft_estimator
        self._late_quota = LateQuota()
        """The quota of late requests of all tenants together, unless they share."""
        self._heap: list[tuple[Key, int, int, WaitingAccount]] = []
        self._last_left: WaitingAccount | None = None
        """The account whose last waiting request left last."""
        self._parked: dict[str, WaitingAccount] = {}
        """Accounts that a limit of their tenant's keeps from starting anything, by tenant."""
        self._wakes: list[tuple[float, int, WaitingAccount]] = []
        """When parked accounts may go on at the latest, soonest first."""

    def new_queue(self) -> ArrivalQueue | DeadlineQueue:
        """What holds the waiting requests of another account."""
        if self._ttft_estimator is None:
            return ArrivalQueue()
        return DeadlineQueue(self._ttft_estimator, LateQuota() if self._is_fair else self._late_quota)

    def enter(self, account: WaitingAccount, request: Request, was_empty: bool) -> None:
        """`request` was added to `account`."""
        if account.tenant.name in self._parked:
            return
        if was_empty:
            self._come_back(account)
        elif not self._is_fair and account.requests.head() is request:
            self._enqueue(account)

    def left(self, account: WaitingAccount) -> None:
        """A request of `account` was placed, or does not wait any more."""
        if not len(account.requests):
            account.version += 1
            self._last_left = account

    def wake(self, tenant: Tenant) -> None:
        """A limit of the tenant's may have room again."""
        account = self._parked.pop(tenant.name, None)
        if account is not None and len(account.requests):
            self._come_back(account)

    def forget(self, account: WaitingAccount) -> bool:
        """Drops an idle account; False when its counter is still needed."""
        if account is self._last_left:
            return False
        self._parked.pop(account.tenant.name, None)
        account.version += 1
        del self.accounts[account.tenant.name]
        return True

    def walk(self, now: float) -> Generator[Request, None, None]:
        """Waiting requests, each time the next one of whoever has had least. To be closed."""
        while self._wakes and self._wakes[0][0] <= now:
            self.wake(heapq.heappop(self._wakes)[2].tenant)
        self._late_quota.restore()
        self._put_late_first()
        visited: list[WaitingAccount] = []
        walkers: dict[int, Iterator[Request]] = {}
        try:
            while (account := self._take_least()) is not None:
                if account.tenant.throttled_by(now) is not None:
                    self._park(account, now)
                    self._put_late_first()
                    continue
                visited.append(account)
                walker = walkers.get(account.index)
                if walker is None:
                    walker = walkers[account.index] = account.requests.walk()
                for request in walker:
                    yield request
                    if request.status is not RequestStatus.WAITING:  # it was taken, and charged
                        self._enqueue(visited.pop())
                        break
        finally:
            for account in visited:
                self._enqueue(account)

    def gap(self) -> float:
        """Virtual tokens between who has had most and who has had least, of those that wait."""
        waiting = [self._ledger.counter(a.index) for a in self.accounts.values() if len(a.requests)]
        return max(waiting) - min(waiting) if waiting else 0.0

    def _put_late_first(self) -> None:
        """Puts the account first whose late request is next. One that is parked is substituted, so that the others do
        not starve behind a limit that is not theirs."""
        next_late = self._late_quota.next_late()
        if next_late is not None and self._is_parked(next_late):
            queues = (account.requests for account in self.accounts.values())
            late = (queue.oldest_late() for queue in queues if isinstance(queue, DeadlineQueue))
            free = [request for request in late if request is not None and not self._is_parked(request)]
            next_late = min(free, key=lambda request: request.arrival, default=None)
            self._late_quota.substitute_with(next_late)
        if next_late is not None and next_late.entry.account is not None:
            self._enqueue(self.accounts[next_late.entry.account.tenant.name])  # its key has fallen

    def _is_parked(self, request: Request) -> bool:
        return request.entry.account is not None and request.entry.account.tenant.name in self._parked

    def _park(self, account: WaitingAccount, now: float) -> None:
        self._parked[account.tenant.name] = account
        wait_s = account.tenant.recovery_s()
        if wait_s:
            heapq.heappush(self._wakes, (now + wait_s, account.index, account))

    def _come_back(self, account: WaitingAccount) -> None:
        """It waits (again): what it did not take meanwhile is not saved up, but for a credit while it has requests that
        run, so that a few that come at once need not wait for each other."""
        account.version += 1
        if self._is_fair:
            least = self._least() or self._last_left
            if least is not None:
                credit = self._ledger.credit if account.num_running else 0.0
                self._ledger.lift(account.index, self._ledger.counter(least.index) - credit)
        self._enqueue(account)

    def _enqueue(self, account: WaitingAccount) -> None:
        account.version += 1
        if len(account.requests):
            heapq.heappush(self._heap, (self._key(account), account.index, account.version, account))

    def _key(self, account: WaitingAccount) -> Key:
        if self._is_fair:
            return self._ledger.counter(account.index)
        return account.requests.key()

    def _least(self) -> WaitingAccount | None:
        """Whose turn it is."""
        while self._heap:
            key, _, version, account = self._heap[0]
            if version != account.version:
                heapq.heappop(self._heap)
                continue
            current = self._key(account)
            if current == key:
                return account
            heapq.heapreplace(self._heap, (current, account.index, version, account))
        return None

    def _take_least(self) -> WaitingAccount | None:
        account = self._least()
        if account is not None:
            heapq.heappop(self._heap)
            account.version += 1
        return account
