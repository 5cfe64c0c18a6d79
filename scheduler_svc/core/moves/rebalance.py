"""Requests go from a worker that is slow, full or hot to one that has room (HO15, HO16)."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_svc.core.config import SchedulerConfig
from scheduler_svc.core.handoff.desk import HandoffDesk
from scheduler_svc.core.handoff.drain import MAX_LOOKED_AT, best_target
from scheduler_svc.core.handoff.eligibility import same_layout, why_request_stays
from scheduler_svc.core.moves.price import num_left, price_s
from scheduler_svc.core.moves.step_cost import StepCost
from scheduler_svc.core.request import Request
from scheduler_svc.core.slots.state import RUNNING
from scheduler_svc.core.slots.worker import Worker
from signalbox.protocol.enums import WorkerHealth

MARGIN = 4
"""Requests that a hot worker has more than the other: after a move it still has two more, so that none goes back."""
HOT_SHARE = 0.25
"""By so much of its own at least, too."""


class Rebalance:
    """Begins hand-offs while the load of workers differs for long."""

    def __init__(self, config: SchedulerConfig, workers: Mapping[str, Worker], desk: HandoffDesk) -> None:
        self._config, self._workers, self._desk = config, workers, desk
        self._since: dict[str, float] = {}
        """When each worker was seen to have too much, without a look since at which it had not."""

    def look(self, costs: Mapping[str, StepCost], now: float) -> None:
        """One pass over the workers. `costs`: of their steps, by name."""
        for name, worker in self._workers.items():
            targets = self._targets(worker)
            if not targets or not self._has_too_much(worker, targets):
                self._since.pop(name, None)
                continue
            since = self._since.setdefault(name, now)
            if is_slow(worker) or now - since >= self._config.rebalance_after_s:
                self._relieve(worker, targets, costs.get(name), now)

    def _targets(self, worker: Worker) -> list[Worker]:
        """Who could take something, and has nothing of its own that waits."""
        if not worker.attached or worker.draining or not worker.table.num_running:
            return []
        return [
            other
            for other in self._workers.values()
            if same_layout(worker, other) and other.takes_new and not is_full(other)
        ]

    def _has_too_much(self, worker: Worker, targets: list[Worker]) -> bool:
        return is_slow(worker) or is_full(worker) or any(is_hot_beside(worker, target) for target in targets)

    def _relieve(self, worker: Worker, targets: list[Worker], cost: StepCost | None, now: float) -> None:
        room = self._config.max_handoffs_per_worker - len(worker.handoffs.exports)
        is_urgent = is_slow(worker) or is_full(worker)
        for request in self._candidates(worker, now) if room > 0 else ():
            able = targets if is_urgent else [each for each in targets if is_hot_beside(worker, each)]
            target = best_target(request, worker, able, self._config)
            if target is None or not (is_urgent or self._pays(request, worker, target, cost)):
                continue
            request.history.no_move_before = now + self._config.rebalance_pause_s
            self._desk.begin(request, worker, target, now)
            room -= 1
            if not room:
                return

    def _candidates(self, worker: Worker, now: float) -> list[Request]:
        """What runs and would be moved: what costs least first, of that what has most to come. What has less to come
        than the move takes stays."""
        priced = []
        for request in worker.requests():
            slot, history = request.slot, request.history
            assert slot is not None
            if now < max(history.no_handoff_before, history.no_move_before):
                continue
            if worker.table.state[slot] not in RUNNING or request.rests or why_request_stays(request, worker):
                continue
            price, left = price_s(worker, slot, self._config.handoff_blocks_per_s), num_left(worker, slot)
            if left * worker.pacer.typical_s >= price:
                priced.append((price, -left, request.order, request))
        priced.sort(key=lambda each: each[:3])
        return [request for *_, request in priced[:MAX_LOOKED_AT]]

    def _pays(self, request: Request, worker: Worker, target: Worker, cost: StepCost | None) -> bool:
        """Its own steps, and those of all whom it leaves or joins, get shorter by more than the move costs."""
        assert request.slot is not None
        token_s = cost.token_s if cost is not None else 0.0
        gain_s = num_left(worker, request.slot) * token_s * 2 * (worker.num_active - target.num_active - 1)
        return gain_s > price_s(worker, request.slot, self._config.handoff_blocks_per_s)


def is_slow(worker: Worker) -> bool:
    """Its steps take many times as long as they did."""
    return worker.health is WorkerHealth.SLOW


def is_full(worker: Worker) -> bool:
    """Blocks or places are short: a request is held, or waits for blocks or a place that it had."""
    return bool(worker.table.held) or worker.table.has_waiting


def is_hot_beside(worker: Worker, other: Worker) -> bool:
    """It has so many more requests that the other would not be the hotter one after two moves."""
    difference = worker.num_active - other.num_active
    return difference >= MARGIN and difference >= HOT_SHARE * worker.num_active
