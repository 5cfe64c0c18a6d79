"""Preempted requests, and those that wait for their grammar or for blocks behind it, start elsewhere (HO17)."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_svc.core.config import SchedulerConfig
from scheduler_svc.core.handoff.desk import HandoffDesk
from scheduler_svc.core.handoff.drain import MAX_LOOKED_AT, best_target
from scheduler_svc.core.handoff.eligibility import is_full, same_layout
from scheduler_svc.core.moves.step_cost import StepCost
from scheduler_svc.core.request import Request
from scheduler_svc.core.slots.worker import Worker


def resume_elsewhere(
    config: SchedulerConfig,
    workers: Mapping[str, Worker],
    desk: HandoffDesk,
    costs: Mapping[str, StepCost],
    now: float,
) -> None:
    """Begins to hand over what has no blocks, and would wait longer than it takes to compute at another worker."""
    for worker in workers.values():
        table = worker.table
        if worker.attached and (table.preempted or table.prepared):
            _look(worker, config, workers, desk, costs, now)


def _look(
    worker: Worker,
    config: SchedulerConfig,
    workers: Mapping[str, Worker],
    desk: HandoffDesk,
    costs: Mapping[str, StepCost],
    now: float,
) -> None:
    room = config.max_handoffs_per_worker - len(worker.handoffs.exports)
    targets = [
        other
        for other in workers.values()
        if same_layout(worker, other) and other.takes_new and not is_full(other)
    ]
    wait_s = until_next_end_s(worker)
    slots = [*worker.table.preempted, *worker.table.prepared][:MAX_LOOKED_AT]
    for slot in slots if targets and room > 0 else ():
        request = worker.request(slot)
        target = _target_for(request, slot, worker, targets, config, desk, now)
        cost = costs.get(target.info.worker_id) if target is not None else None
        if target is None or cost is None or not cost.token_s:
            continue
        if wait_s <= num_tokens(worker, slot) * cost.token_s:
            continue
        request.history.no_move_before = now + config.rebalance_pause_s
        desk.begin(request, worker, target, now)
        room -= 1
        if not room:
            return


def _target_for(
    request: Request,
    slot: int,
    worker: Worker,
    targets: list[Worker],
    config: SchedulerConfig,
    desk: HandoffDesk,
    now: float,
) -> Worker | None:
    """Who has a place, and blocks for all of it: it starts there at once."""
    history = request.history
    if request.rests or now < max(history.no_handoff_before, history.no_move_before):
        return None
    if not worker.is_resumable(slot) or desk.why_request_stays(request, worker):
        return None
    able = [each for each in targets if _has_blocks(each, num_tokens(worker, slot), config)]
    return best_target(request, worker, able, desk, now)


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
