"""Decides one step of one worker: release, settle, grant; then whoever goes on or starts
(`prefill_admission.py`).

In a steady step nothing here loops over the running requests: decode rows are columns, and only slots whose bound
passes their trigger, prefills and newcomers are looked at one by one.
"""

from __future__ import annotations

from scheduler_svc.core.queue.waiting_cursor import WaitingCursor
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.groups.checkpoints import NO_CHECKPOINT
from scheduler_svc.core.state.part import Phase
from scheduler_svc.core.state.steps.step import Slots, StepDecision, StepRecord
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step.decode_blocks import grant_rows
from scheduler_svc.core.step.prefill_admission import admit_requests


def build_step(worker: Worker, config: SchedulerConfig, offers: WaitingCursor, now: float) -> StepDecision:
    """Decides the next step and takes it into the worker's state. Empty decisions are not to be sent.

    `offers` are the requests that this worker may take, in order; those taken are `placed` in the decision.
    """
    step, table, parts = StepDecision(worker.next_step_id), worker.table, worker.parts
    table.begin_turn(step.step_id)
    step.finished_slots = table.name_released()
    if table.aside:
        table.bring_back(step)
    for part in parts.finish:
        if not part.is_idle:
            part.act(Phase.FINISH, step, now)
    table.decode_settled()
    for part in parts.preempt:
        if not part.is_idle:
            part.act(Phase.PREEMPT, step, now)
    for slot in table.refused[:]:
        if slot not in step.spared_slots:
            worker.preempt(slot, step)
    for part in parts.copy:
        if not part.is_idle:
            part.act(Phase.COPY, step, now)
    table.apply_rests(step)
    table.allow_drafts(step)
    short = grant_rows(worker, step)
    budget = worker.limits.max_num_batched_tokens - table.turn.num_tokens
    admit_requests(worker, config, step, budget, offers, is_short=short, now=now)
    rows = table.turn.slots
    step.num_decode_rows = len(rows)
    step.passes = table.decode_tokens > table.turn.num_tokens
    for part in parts.order:
        if not part.is_idle:
            part.act(Phase.ORDER, step, now)
    if not step.is_empty:
        _record(worker, step, rows)
    return step


def _record(worker: Worker, step: StepDecision, rows: Slots) -> None:
    table = worker.table
    worker.stats.num_block_copies += len(step.copies)
    if step.fence is not None:
        worker.stats.num_block_copies += len(step.fence.copies)
        worker.stats.num_fences += 1
    chunks, read_checkpoints = step.chunks[:], list[int]()
    for start in (*step.resumed, *step.started):
        chunks.append(start.chunk)
        if start.checkpoint != NO_CHECKPOINT:
            read_checkpoints.append(start.checkpoint)
    for chunk in chunks:
        step.num_prefill_tokens += chunk.length
    worker.records.append(
        StepRecord(
            step_id=step.step_id,
            advance=table.turn.share(),
            decode_slots=rows,
            num_decode_rows=step.num_decode_rows,
            has_drafts=table.turn.has_drafts,
            chunks=chunks,
            num_prefill_tokens=step.num_prefill_tokens,
            released_slots=step.finished_slots,
            is_ahead=0 < len(worker.records) < worker.limits.max_inflight_steps,
            copies=step.copies,
            checkpoints=step.checkpoints,
            read_checkpoints=read_checkpoints,
        )
    )
    worker.next_step_id += 1
    worker.stats.num_steps += 1
