"""Who goes before a request, and why: the order of the policy, told for one of those that wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import islice, takewhile

from scheduler_svc.core.queue.queues import Queues
from scheduler_svc.core.queue.waiting_account import WaitingAccount
from scheduler_svc.core.state.requests.order import (
    Key,
    ServiceReceived,
    classes_risen,
    goes_before,
    resume_key,
    waiting_key,
)
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.worker import Worker

MAX_LOOKED_AT = 5_000
"""Requests that are looked at to find who goes before one: nothing else goes on meanwhile."""


@dataclass(frozen=True)
class Group:
    """Requests of one class and one tenant."""

    priority: int
    """0 when the policy knows no classes."""
    tenant: str
    num_requests: int


@dataclass(frozen=True)
class QueuePlace:
    """Where a request stands among those that wait for the same workers."""

    num_ahead: int = 0
    """Requests that go before it."""
    ahead: tuple[Group, ...] = ()
    """Requests that go before it, in the order of classes."""
    turns: tuple[Group, ...] = ()
    """Tenants of its class with whom its own takes turns: whoever has had least is next."""
    first: Request | None = None
    """The request that is next, of those that were looked at; None: the request itself."""
    is_cut: bool = False
    """More may go before it: not all were looked at."""


NOWHERE = QueuePlace()
"""The place of a request that does not wait in a line."""


@dataclass(frozen=True)
class Order:
    """The order in which waiting requests of one model are looked at."""

    queues: Queues
    aging_s: float
    """Seconds until a waiting request rises by a class; 0: nobody rises."""
    now: float
    most: int = MAX_LOOKED_AT
    """Requests that are looked at, besides one of each account."""

    @property
    def service_received(self) -> ServiceReceived | None:
        """None: tenants do not share."""
        return self.queues.service_received if self.queues.policy.is_fair else None

    def key(self, request: Request) -> Key:
        """Who has a smaller one goes first. A tenant's counter moves with what it is given."""
        has_deadlines = self.queues.policy.has_deadlines
        return waiting_key(request, self.level(request), self.service_received, has_deadlines=has_deadlines)

    def level(self, request: Request) -> int:
        """The class that it has risen to by waiting."""
        if not self.aging_s or request.entry.waits_since is None or request.suspended:
            return request.entry.priority
        return request.entry.priority - classes_risen(request.entry.waits_since, self.now, self.aging_s)

    def goes_before(self, request: Request, resumed: Request) -> bool:
        """Whether `request`, which waits, starts before one that its worker is to let start or go on."""
        return goes_before(request, self.level(request), resumed, self.service_received)

    def resume_key(self, request: Request) -> tuple[int, float, tuple[int, int]]:
        """The order of those that a worker is to let start or go on."""
        return resume_key(request, self.service_received)


def place_of(request: Request, order: Order, kinds: Collection[bool]) -> QueuePlace:
    """`kinds`: of pooling requests (True) and others, those that count, as they want the same workers. Looks at those
    ahead one by one, its own account first."""
    own, left, is_cut = order.key(request), order.most, False
    ahead: list[Request] = []
    turns: list[Group] = []
    heads: list[tuple[Key, Request]] = []
    for account in _accounts(request, order):
        most = max(left, 1)
        before, num_looked_at = _before(request, own, account, order, most)
        left -= num_looked_at
        keyed = [(key, other) for key, other in before if other.is_pooling in kinds]
        waiting = [other for _, other in keyed]
        heads += keyed[:1]
        oldest = account.requests.oldest()
        is_other = oldest is not None and account is not request.entry.account
        if oldest is not None and is_other and _take_turns(order, order.key(oldest), own):
            turns.append(Group(oldest.entry.priority, oldest.tenant, len(account.requests)))
        else:
            ahead += waiting
            is_cut |= num_looked_at == most < len(account.requests)
    turns.sort(key=lambda group: -group.num_requests)
    _, first = min(heads, key=lambda head: head[0], default=(own, None))
    return QueuePlace(len(ahead), _group(ahead), tuple(turns), first, is_cut)


def _before(
    request: Request, own: Key, account: WaitingAccount, order: Order, most: int
) -> tuple[list[tuple[Key, Request]], int]:
    """Requests of `account` that go before `request`, which has the key `own`, in order; and how many were looked at,
    not more than `most`."""
    others = ((order.key(other), other) for other in islice(account.requests, most))
    if order.queues.policy.has_deadlines:
        before = sorted((pair for pair in others if pair[0] < own), key=lambda pair: pair[0])
        return before, min(most, len(account.requests))
    if account is request.entry.account:
        before = list(takewhile(lambda pair: pair[1].arrival < request.arrival, others))
    else:
        before = list(takewhile(lambda pair: pair[0] < own, others))
    return before, len(before)


def _accounts(request: Request, order: Order) -> Iterable[WaitingAccount]:
    """Its own, and those whose classes and tenants may start something now."""
    own = order.queues.of(request.model).account_of(request)
    yield own
    yield from (account for account in _startable(request.model, order) if account is not own)


def _startable(model: str, order: Order) -> Iterable[WaitingAccount]:
    queue = order.queues.of(model)
    for priority, members in queue.classes.items():
        if not queue.suspends(priority):
            yield from (a for a in members.accounts.values() if a.tenant.throttled_by(order.now) is None)


def _take_turns(order: Order, key: Key, own: Key) -> bool:
    """Tenants of a class, but for who has risen: those go by arrival."""
    return order.queues.policy.is_fair and key[:2] == own[:2] and key[1]


def _group(requests: Iterable[Request]) -> tuple[Group, ...]:
    counts = Counter((request.entry.priority, request.tenant) for request in requests)
    return tuple(Group(*group, count) for group, count in sorted(counts.items()))


def first_waiting(worker: Worker, order: Order) -> Request | None:
    """The request that no worker has and that `worker` would look at first."""
    heads: list[Request] = []
    for account in _startable(worker.info.model, order):
        heads += islice(filter(worker.info.serves, islice(account.requests, order.most)), 1)
    return min(heads, key=order.key, default=None)


def place_on(worker: Worker, request: Request, order: Order) -> QueuePlace:
    """The place of a request that its worker is to let start or go on: it was displaced or preempted, or its grammar is
    ready."""
    own = order.resume_key(request)
    before = sorted(
        filter(lambda other: order.resume_key(other) < own, resumed(worker)), key=order.resume_key
    )
    return QueuePlace(len(before), _group(before), (), before[0] if before else None)


def resumed(worker: Worker) -> list[Request]:
    """Requests that start or go on before new ones of their class."""
    slots = worker.table.not_running
    return [request for request in map(worker.request, slots) if not request.rests]
