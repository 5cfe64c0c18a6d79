"""When blocks are short: which come by themselves, and whose are taken."""

from __future__ import annotations

import numpy as np

from scheduler_svc.core.state.blocks.block_pool import BlockPool, Blocks
from scheduler_svc.core.state.slots.slot_state import DISPLACED, RESTING, SlotState
from scheduler_svc.core.state.steps.step import Slots
from scheduler_svc.core.state.worker import Worker


def certain_to_end(worker: Worker) -> Slots:
    """Slots that reach their limit within the steps in flight: each decode row makes one token at least, and a pooling
    request ends with its final chunk. One whose last row sat out (G6) may do so any number of times."""
    table = worker.table
    in_flight = np.zeros(table.num_slots, np.int64)
    for record in worker.records:
        if record.may_be_skipped:
            continue  # the worker need not run it
        in_flight += record.advance > 0
        for chunk in record.chunks:
            in_flight[chunk.slot] += chunk.is_final
    ends = table.num_prompt + table.num_output + in_flight >= table.limit
    # Of the slots that prefill, only pooling ones have their final chunk in flight: the others decode by now.
    prefills = (table.state == SlotState.PREFILL) & (in_flight > 0)
    return np.flatnonzero(ends & (prefills | ((table.state == SlotState.DECODE) & ~table.sat_out)))


def blocks_coming(worker: Worker, ending: Slots) -> list[int]:
    """Blocks of each group that will be available when the slots `ending` have ended."""
    slots = ending.tolist()
    coming = [_held_alone(worker.pool, [worker.table.table(slot) for slot in slots])]
    for window in worker.windows:
        coming.append(_held_alone(window.pool, [window.table(slot) for slot in slots]))
    return coming


def _held_alone(pool: BlockPool, tables: list[Blocks]) -> int:
    return sum(int(np.count_nonzero(pool.ref_counts[blocks] == 1)) for blocks in tables)


def covers(coming: list[int], lacking: list[int]) -> bool:
    """Whether what comes is what is lacking, of every group."""
    return all(there >= wanted for there, wanted in zip(coming, lacking, strict=True))


def victim_for(worker: Worker, slot: int, ending: Slots) -> int | None:
    """Who gives up its blocks for `slot`: one that rests, else a younger one, else one without a place if nobody runs;
    of these whoever loses least."""
    table, keep, order = worker.table, set(ending.tolist()), worker.request(slot).order
    running = np.flatnonzero((table.state == SlotState.DECODE) | (table.state == SlotState.PREFILL))
    keep |= table.frozen.keys()
    others = [int(other) for other in running if other != slot and int(other) not in keep]
    idle = [other for other in others if table.paused[other] & RESTING]
    younger = idle or [other for other in others if worker.request(other).order > order]
    if not younger and all(table.paused[other] for other in others):
        # An older one that was displaced wants blocks, too, before it goes on: each would wait for the other.
        younger = [other for other in others if table.paused[other] & DISPLACED]
    return min(younger, key=lambda other: loss(worker, other), default=None)


def loss(worker: Worker, slot: int) -> tuple[int, ...]:
    """What a preemption of `slot` costs, to be compared: how often it was preempted before, then the work that it has
    sunk; the youngest loses least."""
    request = worker.request(slot)
    return (
        request.history.num_preemptions,
        int(worker.table.num_blocks[slot]),
        *(-part for part in request.order),
    )
