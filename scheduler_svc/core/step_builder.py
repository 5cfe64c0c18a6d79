"""Decides one step of one worker: release, settle, grant; then whoever goes on or starts (`starts`).

In a steady step nothing here loops over the running requests: decode rows are columns, and only slots whose bound
passes their trigger, prefills and newcomers are looked at one by one.
"""

from __future__ import annotations

import numpy as np

from scheduler_svc.core.config import SchedulerConfig
from scheduler_svc.core.offers import Offers
from scheduler_svc.core.request_table import HELD, SlotState
from scheduler_svc.core.shortage import blocks_coming, certain_to_end, victim_for
from scheduler_svc.core.starts import start_requests
from scheduler_svc.core.step import Slots, StepDecision, StepRecord
from scheduler_svc.core.worker import Worker


def build_step(worker: Worker, config: SchedulerConfig, offers: Offers, now: float) -> StepDecision:
    """Decides the next step and takes it into the worker's state. Empty decisions are not to be sent.

    `offers` are the requests that this worker may take, in order; those taken are `placed` in the decision.
    """
    step = StepDecision(worker.next_step_id)
    _release(worker, step)
    _settle(worker, step)
    short = _grant(worker, step)
    budget = worker.limits.max_num_batched_tokens - worker.table.decode_tokens
    start_requests(worker, config, step, budget, offers, is_short=short, now=now)
    step.num_decode_rows = len(worker.table.decode_slots)
    if not step.is_empty:
        _record(worker, step)
    return step


def _release(worker: Worker, step: StepDecision) -> None:
    step.finished_slots = worker.releasing
    worker.releasing = []
    for slot in step.finished_slots:
        worker.table.set_row(slot, False)


def _settle(worker: Worker, step: StepDecision) -> None:
    for slot in worker.settling:
        worker.become_decoding(slot)
    worker.settling = []
    for slot in list(worker.refused):
        worker.preempt(slot, step)
    for slot in worker.toggled:
        worker.apply_rest(slot, step)
    worker.toggled = []
    _allow_drafts(worker, step)


def _allow_drafts(worker: Worker, step: StepDecision) -> None:
    """Before blocks are granted: the worker may use its new limits in this very step."""
    table = worker.table
    for slot, limit in worker.wanted_drafts.items():
        if table.state[slot] not in (SlotState.FREE, SlotState.RELEASING):
            table.limit_drafts(slot, limit)
            step.draft_limits.append((slot, limit))
    worker.wanted_drafts = {}


# -- blocks for decode rows --


def _grant(worker: Worker, step: StepDecision) -> bool:
    """Sees that every decode row has blocks for all tokens it can get in this step. Returns whether some lacked."""
    table = worker.table
    table.bound += table.advance
    needy = (table.bound > table.trigger).nonzero()[0]
    if not len(needy) and not worker.held:
        return bool(step.preempted_slots)
    if not worker.held and _most_needed(worker, len(needy)) <= worker.pool.num_available:
        if worker.limits.num_draft_tokens < table.block_size:
            worker.grant_one_each(needy, step)
        else:
            need = np.minimum(table.bound[needy], table.limit[needy]) - 1
            worker.grant(needy, -(-need // table.block_size) - table.num_blocks[needy], step)
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
    coming = blocks_coming(worker, ending) + worker.pool.num_fenced
    candidates = sorted({*needy.tolist(), *worker.held}, key=lambda slot: worker.request(slot).order)
    blocked = False
    for slot in candidates:
        if worker.table.state[slot] != SlotState.DECODE:
            continue  # it became a victim
        lacking = _lacking(worker, slot) - worker.pool.num_available
        if not blocked and lacking > coming:
            victim = victim_for(worker, slot, ending)
            if victim is not None:
                worker.preempt(victim, step)
                lacking = _lacking(worker, slot) - worker.pool.num_available
        if blocked or lacking > 0:
            # Whoever comes later waits too: what is there, and what comes, belongs to the older request.
            worker.hold(slot, step)
            blocked = True
        else:
            _grant_one(worker, slot, step)
    return blocked or bool(step.preempted_slots)


def _lacking(worker: Worker, slot: int) -> int:
    bound = int(worker.table.bound[slot])
    if worker.table.paused[slot] & HELD:
        bound += 1 + int(worker.table.drafts[slot])
    return worker.table.blocks_needed(bound, slot)


def _grant_one(worker: Worker, slot: int, step: StepDecision) -> None:
    count = _lacking(worker, slot)
    if worker.table.paused[slot] & HELD:
        worker.unhold(slot, step)
    if count > 0:
        worker.grant(np.array([slot]), np.array([count]), step)


# -- record --


def _record(worker: Worker, step: StepDecision) -> None:
    table = worker.table
    worker.stats.num_block_copies += len(step.copies)
    if step.fence is not None:
        worker.stats.num_block_copies += len(step.fence.copies)
        worker.stats.num_fences += 1
    chunks = [*step.chunks, *(s.chunk for s in step.resumed), *(s.chunk for s in step.started)]
    step.num_prefill_tokens = sum(chunk.length for chunk in chunks)
    worker.records.append(
        StepRecord(
            step_id=step.step_id,
            advance=table.share_advance(),
            decode_slots=table.decode_slots,
            num_decode_rows=step.num_decode_rows,
            has_drafts=table.has_drafts,
            chunks=chunks,
            num_prefill_tokens=step.num_prefill_tokens,
            released_slots=step.finished_slots,
            is_ahead=bool(worker.records),
        )
    )
    worker.next_step_id += 1
    worker.stats.num_steps += 1
