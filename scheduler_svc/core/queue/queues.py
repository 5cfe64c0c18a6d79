"""All that waits, by model, and what everybody has had: the policies at work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain

import numpy as np

from scheduler_svc.core.queue.deadlines import Deadlines
from scheduler_svc.core.queue.ledger import Ledger, outputs_by_account
from scheduler_svc.core.queue.mask_seconds import MaskSeconds
from scheduler_svc.core.queue.refusal import QUEUE_RETRY_S, refuse, refuse_for_now
from scheduler_svc.core.queue.ttft_estimator import TtftEstimator
from scheduler_svc.core.queue.waiting_account import WaitingAccount
from scheduler_svc.core.queue.waiting_queue import WaitingQueue
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.policy_spec import parse_policy
from scheduler_svc.core.state.requests.notices import Rejected
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.requests.tenants import Tenant, TenantLimits, Tenants
from scheduler_svc.core.state.steps.step import MaskWork, StepRecord, StepReport
from scheduler_svc.core.state.ttft_targets import parse_ttft_targets
from scheduler_svc.core.state.worker import Worker

MAX_IDLE_ACCOUNTS = 4096
"""Tenants without any request that are remembered."""
MAX_LOOKED_UP = 1_000
"""Waiting requests that are looked up in caches to count what they have to compute."""


class Queues:
    """Waiting queues of all models. Requests pass `assign`, `push`, then `placed` or `remove`, and `ended`."""

    def __init__(
        self, config: SchedulerConfig, tenants: Tenants, num_cached: Callable[[Request], int]
    ) -> None:
        """`num_cached` tells how many tokens of a waiting request some worker has cached."""
        self.policy = parse_policy(config.policy)
        self.tenants = tenants
        self.deadlines = Deadlines(parse_ttft_targets(config.ttft_targets))
        self.num_waiting = 0
        self.num_waiting_bytes = 0
        self.version = 0
        """Rises whenever a request comes or goes, or classes are suspended or let go on."""
        self.num_suspended = 0
        """Waiting requests whose class is suspended."""
        self.mask_seconds = MaskSeconds()
        self._level: int | None = None
        self._config, self._num_cached = config, num_cached
        self._ledger = Ledger(config.fair_input_weight, config.fair_output_weight, config.fair_credit)
        self._accounts: dict[int, WaitingAccount] = {}
        """The accounts by their index in the ledger."""
        self._queues: dict[str, WaitingQueue] = {}
        self._num_of: Counter[tuple[str, bool]] = Counter()
        """Waiting requests that are not suspended, by model and whether they are pooling requests."""
        self._idle: dict[int, tuple[WaitingQueue, WaitingAccount]] = {}
        """Accounts without any request, the one that was left for longest first."""

    @property
    def tells_tenants_apart(self) -> bool:
        """The order or the limits depend on whose a request is. Else all are booked as one tenant's, so whatever
        goes by tenants has to be named here."""
        return self.policy.is_fair or self.tenants.has_limits

    def of(self, model: str) -> WaitingQueue:
        """The queue of a model."""
        queue = self._queues.get(model)
        if queue is None:
            ttft_estimator = TtftEstimator(self._num_cached)
            queue = WaitingQueue(self.policy, self._config.aging_s, self._ledger, ttft_estimator)
            self._queues[model] = queue
            queue.suspend(self._level, 0.0)
        return queue

    def num_of(self, model: str, is_pooling: bool) -> int:
        """Requests of a model and a kind that wait and are not suspended."""
        return self._num_of[model, is_pooling]

    def num_uncached_tokens(self) -> int:
        """Tokens that have to be computed before all that waits has its first new one. What a worker has cached is left
        out, for the first MAX_LOOKED_UP requests; all others count whole."""
        waiting = list(chain.from_iterable(self._queues.values()))
        num_cached = sum(map(self._num_cached, waiting[:MAX_LOOKED_UP]))
        return sum(request.num_known_tokens for request in waiting) - num_cached

    def num_competing(self, request: Request) -> int:
        """Requests that wait for the same model and have as much right to as `request`: a suspended class takes no room
        from others."""
        priority = request.priority if self.policy.has_classes else 0
        if self._level is not None and priority > self._level:
            queue = self._queues.get(request.model)
            return len(queue) if queue is not None else 0
        return self._num_of[request.model, False] + self._num_of[request.model, True]

    def by_model(self) -> Iterable[tuple[str, WaitingQueue]]:
        """All queues that there are."""
        return self._queues.items()

    def assign(self, request: Request, now: float) -> None:
        """Gives a request its class and its account."""
        entry = request.entry
        entry.priority = entry.effective_priority = request.priority if self.policy.has_classes else 0
        entry.begin_to_wait(now)
        tenant = self.tenants.of(request.tenant if self.tells_tenants_apart else "", now)
        queue = self.of(request.model)
        request.suspended = queue.suspends(entry.priority)
        account = entry.account = queue.open(entry.priority, tenant)
        self._accounts[account.index] = account
        self._idle.pop(account.index, None)

    def refusal_of(self, request: Request, now: float) -> Rejected | None:
        """Why the tenant may not have the request wait; None: it may."""
        if not self.tenants.has_limits:
            return None
        tenant = self.tenants.of(request.tenant, now)
        best, most = tenant.limits.best_priority, tenant.limits.max_queued
        if best is not None and request.priority < best:
            may = f"tenant {tenant.name!r} may ask for {best} or more (best_priority)"
            message = f"priority is {request.priority}; {may}"
            return refuse(request, "InvalidRequestError", message, "priority")
        if most is not None and tenant.num_queued >= most:
            count = (
                f"max_queued: {tenant.num_queued} of {most} requests of tenant {tenant.name!r} wait already"
            )
            throttled_by = tenant.throttled_by(now)
            message = (
                f"{count}, for {throttled_by}"
                if throttled_by
                else f"{count}, {self.num_waiting} of all tenants"
            )
            return refuse_for_now(request, message, max(tenant.recovery_s(), QUEUE_RETRY_S))
        return None

    def push(self, request: Request, now: float) -> None:
        """An assigned request waits."""
        assert request.entry.account is not None
        request.entry.account.tenant.num_queued += 1
        self.num_waiting += 1
        self.num_waiting_bytes += request.num_bytes
        self._count(request, 1)
        self.version += 1
        self.deadlines.set(request, now)
        self.of(request.model).push(request, now)

    def remove(self, request: Request) -> None:
        """A request does not wait any more."""
        account = request.entry.account
        assert account is not None
        account.tenant.num_queued -= 1
        self.num_waiting -= 1
        self.num_waiting_bytes -= request.num_bytes
        self._count(request, -1)
        self.version += 1
        self.of(request.model).remove(request)
        self._close_if_idle(account.index, self.of(request.model))

    def placed(self, request: Request) -> None:
        """A waiting request is a worker's now."""
        self.adopted(request)
        self.remove(request)

    def adopted(self, request: Request) -> None:
        """A worker has had the request before."""
        account = request.entry.account
        assert account is not None
        account.num_running += 1
        account.tenant.num_running += 1

    def ended(self, request: Request) -> None:
        """A request that a worker had has ended."""
        account = request.entry.account
        assert account is not None
        account.num_running -= 1
        self.version += 1
        account.tenant.num_running -= 1
        if account.tenant.limits.max_running is not None:
            self._wake(account.tenant)
        self._close_if_idle(account.index, self.of(request.model))

    def charge_input(self, request: Request, num_cached_tokens: int) -> None:
        """A request starts for the first time. What an earlier attempt of it computed was charged then."""
        account = request.entry.account
        assert account is not None
        if not request.num_prior_output_tokens:
            num_computed = request.num_prompt_tokens - num_cached_tokens
            self._ledger.charge_input(account.index, num_computed)
            account.tenant.spend(num_computed)

    def stepped(
        self, worker: Worker, record: StepRecord, report: StepReport, mask_work: list[MaskWork]
    ) -> None:
        """A step has run, and its report has been read: its work is charged, and how fast prompts are computed is
        noted."""
        if self.tells_tenants_apart:
            self._charge_outputs(worker, record, report)
        if mask_work:
            self._charge_masks(worker, mask_work)
        if self.policy.has_deadlines:
            budget = worker.limits.max_num_batched_tokens
            ttft_estimator = self.of(worker.info.model).ttft_estimator
            ttft_estimator.observe(record.num_prefill_tokens, budget, report.duration_us / 1e6)

    def _charge_outputs(self, worker: Worker, record: StepRecord, report: StepReport) -> None:
        counts = outputs_by_account(worker, record, report)
        self._ledger.charge_outputs(counts)
        if self.tenants.has_limits:
            for index in counts.nonzero()[0].tolist():
                self._accounts[index].tenant.spend(int(counts[index]))

    def _charge_masks(self, worker: Worker, mask_work: list[MaskWork]) -> None:
        """Charges a microsecond of automata like one of the worker's steps."""
        stats = worker.stats
        value = self._ledger.value_of(stats.num_prefill_tokens, stats.num_output_tokens)
        for request, work_us in mask_work:
            self.mask_seconds.add(request.tenant, work_us)
            if request.entry.account is not None:
                self._ledger.charge(request.entry.account.index, work_us * value / max(stats.step_us, 1))

    def charge_output(self, request: Request, num_tokens: int) -> None:
        """Charges output that no report has told of (A7)."""
        account = request.entry.account
        if not num_tokens or account is None or not self.tells_tenants_apart:
            return
        counts = np.zeros(account.index + 1, np.int64)
        counts[account.index] = num_tokens
        self._ledger.charge_outputs(counts)
        account.tenant.spend(num_tokens)

    def set_limits(self, default: TenantLimits, named: dict[str, TenantLimits]) -> None:
        """Puts other limits in force."""
        self.tenants.replace(default, named)
        for account in self._accounts.values():
            self._ledger.set_weight(account.index, account.tenant.limits.weight)
            self._wake(account.tenant)

    def suspend(self, level: int | None, now: float) -> None:
        """Has the classes below `level` wait; None: none."""
        self._level = level
        self.version += 1
        for queue in self._queues.values():
            for request in queue.suspend(level, now):
                change = 1 if request.suspended else -1
                self.num_suspended += change
                self._num_of[request.model, request.is_pooling] -= change

    def service_received(self, request: Request) -> float:
        """Virtual tokens that the request's account has had."""
        account = request.entry.account
        assert account is not None
        return self._ledger.counter(account.index)

    def gap(self) -> float:
        """The largest difference of counters between tenants of one class that wait, in virtual tokens."""
        return max((c.gap() for queue in self._queues.values() for c in queue.classes.values()), default=0.0)

    def _count(self, request: Request, change: int) -> None:
        if request.suspended:
            self.num_suspended += change
        else:
            self._num_of[request.model, request.is_pooling] += change

    def _wake(self, tenant: Tenant) -> None:
        for queue in self._queues.values():
            queue.wake(tenant)

    def _close_if_idle(self, index: int, queue: WaitingQueue) -> None:
        account = self._accounts[index]
        if not account.is_idle:
            return
        self._idle[account.index] = (queue, account)
        if len(self._idle) > MAX_IDLE_ACCOUNTS:
            index, (home, oldest) = next(iter(self._idle.items()))
            del self._idle[index]
            if home.classes[oldest.priority].forget(oldest):
                del self._accounts[index]
                self._ledger.close(index)
                self.tenants.forget(oldest.tenant)
            else:
                self._idle[index] = (home, oldest)
