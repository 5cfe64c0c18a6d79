"""Blocks for decode rows: each has those for all tokens that it can get, or is held until there are some."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scheduler_svc.core.state.blocks.block_pool import Blocks
from scheduler_svc.core.state.slots.slot_state import HELD, SlotState
from scheduler_svc.core.state.steps.step import Slots, StepDecision
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step.shortage import blocks_coming, certain_to_end, victim_for
from signalbox.protocol.block_groups import SPINE


def grant_rows(worker: Worker, step: StepDecision) -> bool:
    """Sees that every decode row has blocks for all tokens it can get in this step. Returns whether some lacked."""
    table = worker.table
    table.bound += table.turn.advance
    needy = (table.bound > table.trigger).nonzero()[0]
    if not len(needy) and not table.held:
        return bool(step.preempted_slots)
    if table.held or not _grant_together(worker, needy, step):
        return _grant_in_order(worker, step, needy)
    return bool(step.preempted_slots)


def _grant_together(worker: Worker, slots: Slots, step: StepDecision) -> bool:
    """Grants each of `slots` what it lacks, where there is enough of every group for all of them. Else nothing is
    granted, and what windows have left behind has been released."""
    table, num_drafts = worker.table, worker.limits.num_draft_tokens
    if num_drafts < table.block_size:
        return _grant_next(worker, slots, step)
    if worker.windows:
        worker.leave_behind(slots)
    # A step moves each bound by 1 + drafts tokens, and a bound was never above its trigger before.
    if len(slots) * (1 + num_drafts // table.block_size) > worker.num_available:
        return False
    need = np.minimum(table.bound[slots], table.limit[slots]) - 1
    grant(worker, slots, -(-need // table.block_size) - table.num_blocks[slots], step)
    return True


def _grant_next(worker: Worker, slots: Slots, step: StepDecision) -> bool:
    """As `_grant_together`, where each of `slots` lacks one block. In a steady step a window has for each slot the one
    that it leaves."""
    if not worker.windows:
        if len(slots) > worker.pool.num_available:
            return False
        _grant_one_each(worker, slots, step)
        return True
    positions = worker.table.confirmed(slots)
    recycled: list[Blocks | None] = []
    has_room = len(slots) <= worker.pool.num_available
    for window in worker.windows:
        blocks = window.recycle(slots, positions)
        has_room = has_room and (blocks is not None or len(slots) <= window.pool.num_available)
        recycled.append(blocks)
    if has_room:
        _grant_one_each(worker, slots, step, recycled)
        return True
    for window, blocks in zip(worker.windows, recycled, strict=True):
        if blocks is not None:
            window.pool.release(blocks)
    return False


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
        _grant_one_each(worker, slots[counts > number], step)


def _grant_one_each(
    worker: Worker, slots: Slots, step: StepDecision, recycled: Sequence[Blocks | None] = ()
) -> None:
    """Gives each of `slots` one more block, of every group: of a window those that were recycled, or others."""
    blocks = worker.pool.take(len(slots))
    worker.table.append_blocks(slots, blocks, worker.pool.generations[blocks])
    if worker.windows:
        own: Sequence[Blocks | None] = recycled or [None] * len(worker.windows)
        others = [window.append(slots, blocks) for window, blocks in zip(worker.windows, own, strict=True)]
        step.grant_of_all(slots, [blocks, *others])
    else:
        step.grant(slots, blocks)
    worker.save_evicted(step)
