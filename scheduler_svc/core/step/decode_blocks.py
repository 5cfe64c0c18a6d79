"""Blocks for decode rows: each has those for all tokens that it can get, or is held until there are some."""

from __future__ import annotations

import numpy as np

from scheduler_svc.core.slots.state import HELD, SlotState
from scheduler_svc.core.slots.worker import Worker
from scheduler_svc.core.step.shortage import blocks_coming, certain_to_end, victim_for
from scheduler_svc.core.step.step import Slots, StepDecision
from signalbox.protocol.block_groups import SPINE


def grant_rows(worker: Worker, step: StepDecision) -> bool:
    """Sees that every decode row has blocks for all tokens it can get in this step. Returns whether some lacked."""
    table = worker.table
    table.bound += table.advance
    needy = (table.bound > table.trigger).nonzero()[0]
    if not len(needy) and not table.held:
        return bool(step.preempted_slots)
    if worker.windows:
        worker.leave_behind(needy)
    if not table.held and _most_needed(worker, len(needy)) <= worker.num_available:
        if worker.limits.num_draft_tokens < table.block_size:
            grant_one_each(worker, needy, step)
        else:
            need = np.minimum(table.bound[needy], table.limit[needy]) - 1
            grant(worker, needy, -(-need // table.block_size) - table.num_blocks[needy], step)
        return bool(step.preempted_slots)
    return _grant_in_order(worker, step, needy)


def _most_needed(worker: Worker, num_needy: int) -> int:
    """Blocks that so many slots can lack at most: a step moves each bound by 1 + drafts tokens, and a bound was never
    above its trigger before."""
    return num_needy * (1 + worker.limits.num_draft_tokens // worker.table.block_size)


def _grant_in_order(worker: Worker, step: StepDecision, needy: Slots) -> bool:
    """Blocks may be short: by order of arrival, grant, or hold for blocks that are certain to come, or take a younger
    request's, or hold."""
    ending = certain_to_end(worker)
    coming = blocks_coming(worker, ending)
    coming[SPINE] += worker.pool.num_fenced
    candidates = sorted({*needy.tolist(), *worker.table.held}, key=lambda slot: worker.request(slot).order)
    blocked = False
    for slot in candidates:
        if worker.table.state[slot] != SlotState.DECODE:
            continue  # it became a victim
        if worker.windows:
            worker.leave_behind(np.array([slot]))
        if not blocked and any(
            lacking > soon for lacking, soon in zip(_shortages(worker, slot), coming, strict=True)
        ):
            victim = victim_for(worker, slot, ending)
            if victim is not None:
                worker.preempt(victim, step)
        if blocked or max(_shortages(worker, slot)) > 0:
            # Whoever comes later waits too: what is there, and what comes, belongs to the older request.
            worker.table.hold(slot, step)
            blocked = True
        else:
            _grant_one(worker, slot, step)
    return blocked or bool(step.preempted_slots)


def _shortages(worker: Worker, slot: int) -> list[int]:
    """Blocks that `slot` needs and nobody has, of each group; its tables in all of them are as long."""
    needed = _lacking(worker, slot)
    return [needed - pool.num_available for pool in worker.pools]


def _lacking(worker: Worker, slot: int) -> int:
    bound = int(worker.table.bound[slot])
    if worker.table.paused[slot] & HELD:
        bound += 1 + int(worker.table.drafts[slot])
    return worker.table.blocks_needed(bound, slot)


def _grant_one(worker: Worker, slot: int, step: StepDecision) -> None:
    count = _lacking(worker, slot)
    if worker.table.paused[slot] & HELD:
        worker.table.unhold(slot, step)
    if count > 0:
        grant(worker, np.array([slot]), np.array([count]), step)


def grant(worker: Worker, slots: Slots, counts: Slots, step: StepDecision) -> None:
    """Gives each of `slots` so many more blocks. The caller has checked that the pool has them."""
    for number in range(int(counts.max())):
        grant_one_each(worker, slots[counts > number], step)


def grant_one_each(worker: Worker, slots: Slots, step: StepDecision) -> None:
    """Gives each of `slots` one more block, of every group."""
    blocks = worker.take_blocks(len(slots), step)
    worker.table.append_blocks(slots, blocks, worker.pool.generations[blocks])
    step.grant(slots, blocks)
    for window in worker.windows:
        step.grant(slots, window.append(slots), window.number)
    if worker.windows:
        worker.save_evicted(step)
