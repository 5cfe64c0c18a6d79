"""What must never be otherwise of one worker: its table, its pools, its lists and its steps in flight."""

from __future__ import annotations

import numpy as np

from scheduler_svc.core.slots.state import ENDED, SlotState
from scheduler_svc.core.slots.table_check import check_table
from scheduler_svc.core.slots.worker import Worker
from signalbox.protocol.block_groups import SPINE


def check_state(worker: Worker) -> None:
    """Asserts all invariants of table, pool, lists and records together."""
    table, states = worker.table, worker.table.state
    check_table(table)
    for number, tier in enumerate(worker.tiers):
        fenced = [fence.groups[number] for fence in worker.fences.values()]
        tier.host.check_integrity(block for each in fenced for block in each.host_blocks)
        closed = [block for each in fenced for block in each.blocks.tolist()]
        assert len(closed) == len(set(closed)) == tier.pool.num_fenced, "a block has no fence, or two"
    decoding = np.flatnonzero(states == SlotState.DECODE).tolist()
    running = [*decoding, *np.flatnonzero(states == SlotState.PREFILL).tolist()]
    holding = [*running, *table.importing]
    disk = worker.disk
    pinned = [
        [*([] if disk is None else disk.pinned(number)), *worker.pulls.pinned(number)]
        for number in range(len(worker.pools))
    ]
    worker.pool.check_integrity([*(table.table(slot) for slot in holding), *pinned[SPINE]])
    for window in worker.windows:
        window.check_slots(table, running, decoding, table.importing, pinned[window.number])
    if worker.checkpoints is not None:
        written = [order.checkpoint for record in worker.records for order in record.checkpoints]
        read = [each for record in worker.records for each in record.read_checkpoints]
        worker.checkpoints.check_integrity(written, read)
    for slot in holding:
        blocks = table.table(slot)
        held = table.generations[slot, : len(blocks)]
        assert np.array_equal(worker.pool.generations[blocks], held), "a held block was given to another"
    for slot in decoding:
        need = min(int(table.bound[slot]), int(table.limit[slot])) - 1
        assert int(table.num_blocks[slot]) * table.block_size >= need, "a decode row lacks a block"
    released = {slot for record in worker.records for slot in record.released_slots}
    assert released | set(table.releasing) == set(np.flatnonzero(states == SlotState.RELEASING).tolist())
    for record in worker.records if len(worker.records) > 1 else ():
        has_ended = not record.chunks or states[record.chunks[0].slot] in ENDED
        assert not record.is_solo or has_ended, "a suspect has company"
