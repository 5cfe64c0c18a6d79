"""Preempted requests, and those that wait for their grammar or for blocks behind it, start elsewhere (HO17)."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_svc.core.moves.desk import HandoffDesk
from scheduler_svc.core.moves.step_cost import StepCost
from scheduler_svc.core.moves.targets import MAX_LOOKED_AT_IN_ALL, Rotation, Targets, by_layout, layout_of
from scheduler_svc.core.parts.handoff.part import handoffs_of
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.worker import Worker

Costs = Mapping[str, StepCost]


class Resumption:
    """Begins to hand over what has no blocks, and would wait longer than it takes to compute at another worker."""

    def __init__(self, config: SchedulerConfig, workers: Mapping[str, Worker], desk: HandoffDesk) -> None:
        self._config, self._workers, self._desk = config, workers, desk
        self._rotation = Rotation()

    def look(self, costs: Costs, now: float) -> None:
        """One pass over the workers, or as many of them as are reached. `costs`: by worker."""
        waiting = {
            name: worker
            for name, worker in self._workers.items()
            if worker.attached and (worker.table.preempted or worker.table.prepared)
        }
        if not waiting:
            return
        able = by_layout(worker for worker in self._workers.values() if worker.takes_new)
        targets = {layout: Targets(members, self._desk, spares_full=True) for layout, members in able.items()}
        left = MAX_LOOKED_AT_IN_ALL
        for worker in self._rotation.of(waiting):
            if layout_of(worker) in targets:
                left -= self._look_at(worker, targets[layout_of(worker)], costs, left, now)
            if left <= 0:
                return

    def _look_at(self, worker: Worker, targets: Targets, costs: Costs, most: int, now: float) -> int:
        """Returns how many requests were looked at."""
        room = self._config.max_handoffs_per_worker - len(handoffs_of(worker).exports)
        if room <= 0:
            return 0
        wait_s = until_next_end_s(worker)
        waiting = [*worker.table.preempted, *worker.table.prepared]
        slots = self._rotation.next_of(worker.info.worker_id, waiting, most)
        for slot in slots:
            request = worker.request(slot)
            target = self._target_for(request, slot, worker, targets, now)
            cost = costs.get(target.info.worker_id) if target is not None else None
            if target is None or cost is None or not cost.token_s:
                continue
            if wait_s <= num_tokens(worker, slot) * cost.token_s:
                continue
            self._rotation.has_begun(worker.info.worker_id)
            request.history.no_move_before = now + self._config.rebalance_pause_s
            self._desk.begin(request, worker, target, now)
            targets.took(target)
            room -= 1
            if not room:
                break
        return len(slots)

    def _target_for(
        self, request: Request, slot: int, worker: Worker, targets: Targets, now: float
    ) -> Worker | None:
        """Who has a place, and blocks for all of it: it starts there at once."""
        history = request.history
        if request.rests or now < max(history.no_handoff_before, history.no_move_before):
            return None
        if not worker.is_resumable(slot) or self._desk.why_request_stays(request, worker):
            return None
        count = num_tokens(worker, slot)
        return targets.best_for(request, worker, now, lambda target: _has_blocks(target, count, self._config))


def _has_blocks(target: Worker, count: int, config: SchedulerConfig) -> bool:
    headroom = config.watermark_blocks_per_seq * (target.num_active + 1)
    return -(-count // target.info.block_size) + headroom <= target.num_available


def num_tokens(worker: Worker, slot: int) -> int:
    """Known tokens of `slot`, which has no blocks."""
    return int(worker.table.num_prompt[slot] + worker.table.num_output[slot])


def num_left(worker: Worker, slot: int) -> int:
    """Output tokens that the request of `slot` may still have."""
    table = worker.table
    return int(table.limit[slot] - table.num_prompt[slot] - table.num_output[slot])


def until_next_end_s(worker: Worker) -> float:
    """Seconds until the first of those that run ends, by its limit, and leaves its blocks to others."""
    rows = worker.table.decode_slots.tolist()
    num_steps = min((num_left(worker, slot) for slot in rows), default=0) * len(worker.table.lanes)
    return num_steps * worker.pacer.typical_s
