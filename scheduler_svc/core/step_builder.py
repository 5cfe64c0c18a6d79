"""Decides one step of one worker: release, settle, grant, go on with prefills, resume, admit.

In a steady step nothing here loops over the running requests: decode rows are columns, and only slots whose bound
passes their trigger, prefills and newcomers are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from scheduler_svc.core.block_pool import Blocks
from scheduler_svc.core.config import SchedulerConfig
from scheduler_svc.core.request import Request, RequestStatus
from scheduler_svc.core.request_table import HELD, SlotState
from scheduler_svc.core.step import Chunk, Slots, Start, StepDecision, StepRecord
from scheduler_svc.core.worker import Worker


def build_step(worker: Worker, config: SchedulerConfig, waiting: Iterator[Request]) -> StepDecision:
    """Decides the next step and takes it into the worker's state. Empty decisions are not to be sent.

    `waiting` are the requests that this worker may take, in order; those taken are `placed` in the decision.
    """
    step = StepDecision(worker.next_step_id)
    _release(worker, step)
    _settle(worker, step)
    short = _grant(worker, step)
    step.num_decode_rows = len(worker.table.decode_slots)
    budget = worker.limits.max_num_batched_tokens - worker.table.decode_tokens
    budget = _continue_prefills(worker, config, step, budget)
    if not short:
        budget = _resume(worker, config, step, budget)
        if not worker.preempted:
            _admit(worker, config, step, budget, waiting)
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
        worker.apply_client_pause(slot, step)
    worker.toggled = []


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
    ending = worker.certain_to_end()
    coming = worker.blocks_coming(ending)
    candidates = sorted({*needy.tolist(), *worker.held}, key=lambda slot: worker.request(slot).order)
    blocked = False
    for slot in candidates:
        if worker.table.state[slot] != SlotState.DECODE:
            continue  # it became a victim
        lacking = _lacking(worker, slot) - worker.pool.num_available
        if not blocked and lacking > coming:
            victim = worker.victim_for(slot, ending)
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


# -- prefills --


def _continue_prefills(worker: Worker, config: SchedulerConfig, step: StepDecision, budget: int) -> int:
    for slot in list(worker.prefilling):
        if budget <= 0:
            break
        if worker.table.paused[slot]:
            continue
        chunk = _send_chunk(worker, config, slot, budget)
        step.chunks.append(chunk)
        if chunk.is_final:
            worker.prefilling.remove(slot)
        budget -= chunk.length
    return budget


def _send_chunk(worker: Worker, config: SchedulerConfig, slot: int, budget: int) -> Chunk:
    """The next chunk of `slot`, at least one token."""
    table = worker.table
    start, target = int(table.num_sent[slot]), int(table.target[slot])
    threshold = config.long_prefill_token_threshold or budget
    length = min(target - start, budget, threshold)
    table.num_sent[slot] = start + length
    is_final = start + length == target
    if is_final:
        worker.settle(slot)
    return Chunk(slot, start, length, is_final)


def _may_start(worker: Worker, config: SchedulerConfig, budget: int) -> bool:
    partial = config.max_num_partial_prefills
    return (
        budget > 0
        and worker.num_running < worker.limits.max_num_seqs
        and not (partial and len(worker.prefilling) >= partial)
    )


def _start(
    worker: Worker, config: SchedulerConfig, step: StepDecision, slot: int, budget: int
) -> Start | None:
    """Starts a slot that has no blocks, with room for all its known tokens; None when there is no room now."""
    table, pool = worker.table, worker.pool
    known = int(table.num_prompt[slot] + table.num_output[slot])
    hits, host_hits = _find_prefix(worker, config, slot, known)
    num_cached = len(hits) + len(host_hits)
    num_new = -(-known // table.block_size) - len(hits)
    headroom = config.watermark_blocks_per_seq * worker.num_running
    if num_new + headroom > pool.num_available - pool.num_idle(hits):
        return None
    if not config.enable_chunked_prefill and known - num_cached * table.block_size > budget:
        return None
    blocks = worker.start(slot, hits, host_hits, num_new, step)
    worker.stats.num_prefix_query_tokens += known
    worker.stats.num_prefix_hit_tokens += num_cached * table.block_size
    worker.stats.num_host_hit_tokens += len(host_hits) * table.block_size
    chunk = _send_chunk(worker, config, slot, budget)
    if not chunk.is_final:
        worker.insert_prefilling(slot)
    return Start(blocks, chunk)


def _find_prefix(worker: Worker, config: SchedulerConfig, slot: int, known: int) -> tuple[Blocks, list[int]]:
    """Blocks on the device that hold the first tokens of `slot`, and host blocks that hold the next ones. At least one
    token is computed, and no shared block is ever written."""
    table = worker.table
    if not config.enable_prefix_caching or worker.request(slot).wants_prompt_logprobs:
        return np.empty(0, np.int32), []
    end = min(int(table.num_hashes[slot]), (known - 1) // table.block_size)
    hits = worker.pool.lookup(table.hashes(slot, 0, end))
    if not len(worker.host):
        return hits, []
    return hits, worker.host.lookup(table.hashes(slot, len(hits), end).tolist())


def _resume(worker: Worker, config: SchedulerConfig, step: StepDecision, budget: int) -> int:
    """Preempted requests go before new ones, the oldest first."""
    for slot in list(worker.preempted):
        if not _may_start(worker, config, budget) or slot in step.preempted_slots:
            break
        if worker.request(slot).client_paused:
            continue
        start = _start(worker, config, step, slot, budget) if worker.is_resumable(slot) else None
        if start is None:
            break
        worker.preempted.remove(slot)
        worker.request(slot).move(RequestStatus.RUNNING)
        step.resumed.append(start)
        budget -= start.chunk.length
    return budget


def _admit(
    worker: Worker, config: SchedulerConfig, step: StepDecision, budget: int, waiting: Iterator[Request]
) -> None:
    """Places waiting requests on this worker while there is room. One that does not fit holds up those behind it."""
    table = worker.table
    while _may_start(worker, config, budget) and table.num_free_slots:
        request = next(waiting, None)
        if request is None:
            return
        limit = min(request.num_prompt_tokens + request.max_tokens, worker.limits.max_model_len)
        slot = table.place(request, limit, worker.limits.num_draft_tokens)
        start = _start(worker, config, step, slot, budget)
        if start is None:
            table.unplace(slot)
            return
        request.move(RequestStatus.RUNNING)
        request.num_cached_tokens = start.chunk.start
        step.placed.append(request)
        step.started.append(start)
        budget -= start.chunk.length


# -- record --


def _record(worker: Worker, step: StepDecision) -> None:
    table = worker.table
    worker.stats.num_block_copies += len(step.copies)
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
