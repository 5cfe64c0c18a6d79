"""Reads a worker's report against the record of the step: counts, chunks, seals, finishes, in this order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.state.blocks.block_pool import BlockPool, Blocks
from scheduler_svc.core.state.groups.checkpoints import Checkpoints
from scheduler_svc.core.state.groups.window import WindowBlocks
from scheduler_svc.core.state.requests.request import Request, RequestStatus
from scheduler_svc.core.state.slots.slot_state import ENDED, RUNNING, SlotState
from scheduler_svc.core.state.slots.table import SlotTable
from scheduler_svc.core.state.steps.step import MaskWork, Slots, StepRecord, StepReport
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.enums import FinishReason

STATUS_OF_REASON = {
    FinishReason.STOP: RequestStatus.FINISHED_STOPPED,
    FinishReason.LENGTH: RequestStatus.FINISHED_LENGTH_CAPPED,
    FinishReason.ABORT: RequestStatus.FINISHED_ABORTED,
    FinishReason.ERROR: RequestStatus.FINISHED_ERROR,
}


class DivergenceError(Exception):
    """Worker and scheduler do not mean the same step. The link is to be closed: the worker's next hello brings its
    snapshot, and the table is rebuilt from that."""


@dataclass(frozen=True)
class Finish:
    """A request that the worker ended."""

    request: Request
    num_output_tokens: int


def read_report(worker: Worker, report: StepReport) -> tuple[list[Finish], list[MaskWork]]:
    """Takes `report` into the worker's state. Returns the requests that ended, and what automata have worked. Raises
    DivergenceError."""
    record = _match(worker, report)
    mask_work = _mask_work(worker, report) if report.mask_us else []
    num_tokens = _count(worker, record, report)
    if record.chunks or report.not_run:
        _confirm_chunks(worker, record, report)
    if len(report.sealed_slots):
        _publish_seals(worker, report)
    if worker.checkpoints is not None:
        _publish_checkpoints(worker, worker.checkpoints, record, report)
    finishes = _finish(worker, report) if report.finished else []
    _limit_drafts(worker, report)
    for slot in record.released_slots:
        worker.table.free(slot)
    worker.last_reported = report.step_id
    if num_tokens or not record.may_be_skipped:  # a step that was skipped says nothing of the worker's pace
        _time(worker, record, report)
    return finishes, mask_work


def _mask_work(worker: Worker, report: StepReport) -> list[MaskWork]:
    requests = worker.table.requests
    found = [(requests[slot], work_us) for slot, work_us in report.mask_us if slot < len(requests)]
    return [MaskWork(request, work_us) for request, work_us in found if request is not None]


def _time(worker: Worker, record: StepRecord, report: StepReport) -> None:
    worker.stats.execute_us += report.execute_us
    for part in worker.parts.computing:
        part.computed(report.num_prefill_tokens, report.num_decode_rows, report.execute_us)
    worker.stats.num_reported += 1
    worker.stats.step_us += report.duration_us
    worker.pacer.observe(
        duration_s=report.duration_us / 1e6, queued_s=report.queued_us / 1e6, was_ahead=record.is_ahead
    )


def first_tokens(worker: Worker, record: StepRecord, report: StepReport) -> list[Request]:
    """Requests whose first output token comes with `report`, which has not been read yet."""
    not_run = {slot for slot, _ in report.not_run}
    finals = [chunk.slot for chunk in record.chunks if chunk.is_final and chunk.slot not in not_run]
    held = [slot for slot in finals if worker.table.state[slot] not in ENDED]
    requests = [worker.request(slot) for slot in held if not worker.table.num_output[slot]]
    return [request for request in requests if not request.is_pooling]


def _match(worker: Worker, report: StepReport) -> StepRecord:
    record = worker.records[0] if worker.records else None
    if record is None or record.step_id != report.step_id:
        expected = record.step_id if record else None
        raise DivergenceError(f"report of step {report.step_id}, expected {expected}")
    mine = (record.num_decode_rows, record.num_prefill_tokens)
    theirs = (report.num_decode_rows, report.num_prefill_tokens)
    if mine != theirs:
        raise DivergenceError(
            f"step {record.step_id}: (decode rows, prefill tokens) are {theirs}, expected {mine}"
        )
    if len(report.checkpoint_positions) != len(record.checkpoints):
        raise DivergenceError(
            f"step {record.step_id}: it tells of {len(report.checkpoint_positions)} checkpoints, "
            f"and {len(record.checkpoints)} were ordered"
        )
    worker.records.popleft()
    return record


def _count(worker: Worker, record: StepRecord, report: StepReport) -> int:
    """Adds the new output tokens: one per decode row and final chunk, but for the exceptions. Returns how many."""
    table = worker.table
    produced = record.num_decode_rows
    if report.decode_counts is not None:
        counts = report.decode_counts.astype(np.int64)
        table.num_output[record.decode_slots] += counts
        table.bound[record.decode_slots] += counts - record.advance[record.decode_slots]
        produced = int(counts.sum())
        table.sat_out[record.decode_slots] = counts == 0
    else:
        rows = record.advance > 0
        table.num_output += rows
        if table.some_sat_out:
            table.sat_out &= ~rows
            table.some_sat_out = bool(table.sat_out.any())
        if record.has_drafts:
            table.bound -= record.advance - rows
    for chunk in record.chunks:
        if chunk.is_final:
            table.num_output[chunk.slot] += 1
            produced += 1
    if len(report.exception_slots):
        difference = report.exception_counts - 1
        table.num_output[report.exception_slots] += difference
        table.bound[report.exception_slots] += difference
        table.sat_out[report.exception_slots] = report.exception_counts == 0
        table.some_sat_out = True
        produced += int(difference.sum())
    worker.stats.num_output_tokens += produced
    return produced


def _confirm_chunks(worker: Worker, record: StepRecord, report: StepReport) -> None:
    """Prompt blocks may be hit from now on. Rows that did not run leave their slot uncertain until it is preempted."""
    table = worker.table
    refused = {slot for slot, _ in report.not_run}
    for chunk in record.chunks:
        if chunk.slot in refused:
            continue
        end = chunk.start + chunk.length
        worker.stats.num_prefill_tokens += chunk.length
        if table.state[chunk.slot] != SlotState.PREEMPTED:
            table.num_computed[chunk.slot] = end
        first = chunk.start // table.block_size
        last = min(end // table.block_size, int(table.num_hashes[chunk.slot]))
        slots, indexes = np.full(max(last - first, 0), chunk.slot), np.arange(first, max(last, first))
        _publish(worker, slots, indexes, worker.windows)
        if chunk.is_final and worker.parts.completing and table.state[chunk.slot] in RUNNING:
            _complete(worker, chunk.slot)
        if worker.windows and table.state[chunk.slot] in RUNNING:
            worker.leave_behind(np.array([chunk.slot]))
    ended = {slot for slot, _, _ in report.finished}
    for slot in refused - ended:
        if table.state[slot] in RUNNING:
            table.refuse(slot)
            worker.request(slot).history.was_refused = True


def _complete(worker: Worker, slot: int) -> None:
    for part in worker.parts.completing:
        part.completed(slot)


def _publish_seals(worker: Worker, report: StepReport) -> None:
    worker.table.add_hashes(report.sealed_slots, report.sealed_indexes, report.sealed_hashes)
    _publish(worker, report.sealed_slots, report.sealed_indexes, worker.windows[:0])


def _publish_checkpoints(
    worker: Worker, checkpoints: Checkpoints, record: StepRecord, report: StepReport
) -> None:
    """States that were kept can be gone on from, by the name of the last block ahead of them. Those that were gone on
    from are nobody's."""
    table = worker.table
    for checkpoint in record.read_checkpoints:
        checkpoints.release(checkpoint)
    for order, position in zip(record.checkpoints, report.checkpoint_positions, strict=True):
        slot, index = order.slot, position // table.block_size - 1
        is_known = 0 <= index < table.num_hashes[slot] and not position % checkpoints.group.boundary
        counts = table.started_at[slot] >= worker.reset_at and not table.is_spoilt[slot]
        name = table.hashes(slot, index, index + 1) if is_known and counts else None
        checkpoints.take_report(order, position, name)


def _publish(
    worker: Worker, slots: Slots, indexes: NDArray[np.int64], windows: Sequence[WindowBlocks]
) -> None:
    """Publishes blocks of `slots` that are still in the generation in which their table got them: any other has been
    given away since the step ran. What was computed before a reset of the cache, or from that, is not published."""
    table = worker.table
    if worker.reset_at:
        counts = table.started_at[slots] >= worker.reset_at
        slots, indexes = slots[counts], indexes[counts]
    _publish_in(worker.pool, table.blocks, still_theirs(worker, slots, indexes), table, slots, indexes)
    for window in windows:
        same = window.still_theirs(slots, indexes)
        _publish_in(window.pool, window.blocks, same, table, slots, indexes)


def _publish_in(
    pool: BlockPool,
    tables: Blocks,
    same: NDArray[np.bool_],
    table: SlotTable,
    slots: Slots,
    indexes: NDArray[np.int64],
) -> None:
    """Publishes in one group's `pool` the blocks of its `tables` that are the `same` as then."""
    if np.count_nonzero(same) < len(same):
        slots, indexes = slots[same], indexes[same]
    pool.publish(tables[slots, indexes], table.hashes_at(slots, indexes))


def still_theirs(worker: Worker, slots: np.ndarray, indexes: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """Whether each block has not been allocated again since the slot's table got it."""
    table = worker.table
    blocks = table.blocks[slots, indexes]
    same: np.ndarray = worker.pool.generations[blocks] == table.generations[slots, indexes]  # type: ignore[type-arg]
    return same


def _limit_drafts(worker: Worker, report: StepReport) -> None:
    """A lower limit holds already, of the steps to come; a higher one with the delta that says so."""
    table = worker.table
    worker.stats.num_draft_tokens += report.num_draft_tokens
    worker.stats.num_accepted_tokens += report.num_accepted_tokens
    for slot, wanted in report.draft_limits:
        if table.state[slot] in ENDED:
            continue
        if wanted > table.drafts[slot]:
            table.want_drafts(slot, min(wanted, worker.limits.num_draft_tokens))
        else:
            table.limit_drafts(slot, wanted)


def _finish(worker: Worker, report: StepReport) -> list[Finish]:
    finishes = []
    for slot, reason, count in report.finished:
        if worker.table.state[slot] in ENDED:
            continue  # cancelled before the report came
        if reason != FinishReason.ERROR and worker.table.state[slot] in RUNNING:
            _complete(worker, slot)
        finishes.append(Finish(worker.request(slot), count))
        worker.release(slot, STATUS_OF_REASON[FinishReason(reason)])
    return finishes
