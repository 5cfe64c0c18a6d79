"""The lengths of section 6 of the design, computed the plain way: what both cores are checked against."""

from __future__ import annotations

import numpy as np

from scheduler_svc.core.state.slots.slot_state import SlotState
from scheduler_svc.core.state.worker import Worker
from tests.simulation.block_rules import sources, targets
from worker_svc.core.requests.request_state import RequestTable as WorkerTable
from worker_svc.core.requests.request_state import SlotStatus
from worker_svc.core.step import SideCopies


def bound(worker: Worker, slot: int) -> int:
    """L9: confirmed tokens plus the most that each step in flight can add: 1 + drafts per decode row, 1 per final
    chunk."""
    confirmed = int(worker.table.num_prompt[slot] + worker.table.num_output[slot])
    rows = sum(int(record.advance[slot]) for record in worker.records)
    finals = sum(chunk.is_final for record in worker.records for chunk in record.chunks if chunk.slot == slot)
    return confirmed + rows + finals


def sent(worker: Worker, slot: int) -> int:
    """Confirmed positions plus the chunks in flight."""
    chunks = [chunk for record in worker.records for chunk in record.chunks if chunk.slot == slot]
    return int(worker.table.num_computed[slot]) + sum(chunk.length for chunk in chunks)


def check_scheduler(worker: Worker) -> None:
    """L1, L9, L12: asserts that the columns, which are kept by additions and subtractions, equal the sums that
    they stand for."""
    table = worker.table
    for slot in np.flatnonzero(table.state == SlotState.DECODE).tolist():
        assert int(table.bound[slot]) == bound(worker, slot), f"slot {slot}: bound {table.bound[slot]}"
    refused = set(worker.table.refused)
    for slot in np.flatnonzero(table.state == SlotState.PREFILL).tolist():
        assert slot in refused or int(table.num_sent[slot]) == sent(worker, slot), f"slot {slot}: sent"
    budget = worker.limits.max_num_batched_tokens
    for record in worker.records:
        assert int(record.advance.sum()) + record.num_prefill_tokens <= budget, "the budget is exceeded"
        assert record.num_decode_rows == int(np.count_nonzero(record.advance))
    check_lanes(worker)


def check_lanes(worker: Worker) -> None:
    """LA1: asserts that from one step of a row to the next, its final chunk included, there are as many as there are
    lanes."""
    num_lanes, last = len(worker.table.lanes), dict[int, int]()
    if num_lanes == 1:
        return
    for record in worker.records:
        finals = [chunk.slot for chunk in record.chunks if chunk.is_final]
        for slot in (*np.flatnonzero(record.advance).tolist(), *finals):
            assert record.step_id - last.get(slot, -num_lanes) >= num_lanes, f"slot {slot} is in two lanes"
            last[slot] = record.step_id
    for number, lane in enumerate(worker.table.lanes):
        others = [other.slots for other in worker.table.lanes[number + 1 :]]
        assert not np.isin(lane.slots, np.concatenate([*others, lane.slots[:0]])).any(), "a row of two lanes"


def check_fences(worker: Worker, theirs: list[SideCopies]) -> None:
    """X5: asserts that what a worker still copies beside its steps is nobody's in the scheduler's eyes: the news
    of an end may lag, and never leads."""
    for group in theirs:
        fence = worker.fences.get(group.fence)
        assert fence is not None, f"fence {group.fence} ended before its copies"
        places = sources(group.copies, are_host=False) | targets(group.copies, are_host=False)
        for tier, fenced in zip(worker.tiers, fence.groups, strict=True):
            blocks = sorted(block for number, block in places if number == tier.group)
            assert set(blocks) <= set(fenced.blocks.tolist()), "a block that is copied has no fence"
            assert not tier.pool.ref_counts[blocks].any(), "a block that is copied has a holder"
            assert not tier.pool.has_content[blocks].any(), "a block that is copied can be hit"


def check_lag(worker: Worker, theirs: WorkerTable) -> None:
    """L2, L9: asserts that the scheduler's confirmed counts lag the worker's and never lead, and that its bound is
    a bound."""
    mine = worker.table
    for slot in np.flatnonzero(mine.state != SlotState.FREE).tolist():
        request, ref = mine.requests[slot], theirs.refs[slot]
        if request is None or ref is None or ref.attempt != request.attempt:
            continue
        is_on_its_way = theirs.status[slot] in (SlotStatus.IMPORTING, SlotStatus.IMPORTED)
        is_given_up = mine.state[slot] == SlotState.RELEASING and is_on_its_way
        if mine.state[slot] == SlotState.IMPORTING or is_given_up:
            continue  # what is known there of it comes from its source, and is given up, maybe
        assert mine.num_output[slot] <= theirs.num_output(slot), f"slot {slot}: the scheduler's count leads"
        status = int(theirs.status[slot])
        if mine.state[slot] == SlotState.DECODE and status == SlotStatus.DECODE:
            assert theirs.num_tokens[slot] <= mine.bound[slot], f"slot {slot}: the bound is none"
        resuming = (
            request.history.preempted_at > worker.last_reported
        )  # its start is what the cache covers, not a count
        if mine.state[slot] == SlotState.PREFILL and status == SlotStatus.PREFILL and not resuming:
            assert mine.num_computed[slot] <= theirs.num_computed[slot], (
                f"slot {slot}: the scheduler's count leads"
            )
