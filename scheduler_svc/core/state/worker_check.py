"""What must never be otherwise of one worker: its table, its pools, its lists and its steps in flight."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from scheduler_svc.core.state.blocks.block_pool import Blocks
from scheduler_svc.core.state.blocks.pieces import TABLE_COST, Pieces, do_all
from scheduler_svc.core.state.slots.slot_state import ENDED, SlotState
from scheduler_svc.core.state.slots.table_check import check_table
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.block_groups import SPINE


def check_state(worker: Worker) -> None:
    """Asserts all invariants of table, pool, lists and records together."""
    do_all(state_pieces(worker))


def state_version(worker: Worker) -> tuple[int, ...]:
    """Another one when what `state_pieces` looks at has changed."""
    pools = [number for tier in worker.tiers for number in (*tier.pool.version, len(tier.host))]
    return (worker.next_step_id, worker.last_reported, worker.table.num_running, *pools)


def state_pieces(worker: Worker) -> Iterator[None]:
    """As `check_state`, piece by piece. Whoever does not do all at once sees to it that `state_version` stays as
    it is."""
    table, states = worker.table, worker.table.state
    check_table(table)
    pieces = Pieces()
    yield from _check_hosts(worker, pieces)
    decoding = np.flatnonzero(states == SlotState.DECODE).tolist()
    running = [*decoding, *np.flatnonzero(states == SlotState.PREFILL).tolist()]
    holding = [*running, *table.importing]
    pinned = _pinned(worker)
    tables = [*(table.table(slot) for slot in holding), *pinned[SPINE]]
    yield from worker.pool.check_pieces(tables, pieces)
    for window in worker.windows:
        yield from window.check_slots(
            table, running, decoding, table.importing, pinned[window.number], pieces
        )
    _check_checkpoints(worker)
    for slot in holding:
        blocks = table.table(slot)
        held = table.generations[slot, : len(blocks)]
        assert np.array_equal(worker.pool.generations[blocks], held), "a held block was given to another"
        if pieces.is_full(TABLE_COST):
            yield
    for slot in decoding:
        need = min(int(table.bound[slot]), int(table.limit[slot])) - 1
        assert int(table.num_blocks[slot]) * table.block_size >= need, "a decode row lacks a block"
    _check_records(worker)
    for part in worker.parts.all:
        part.check_integrity()


def _check_hosts(worker: Worker, pieces: Pieces) -> Iterator[None]:
    states = () if worker.checkpoints is None else (worker.checkpoints.pool,)
    pools = (worker.pool, *(window.pool for window in worker.windows))
    assert worker.pools == pools, "a pool is not the one of its group"
    assert [tier.pool for tier in worker.tiers] == [*pools, *states], "a tier has the pool of another group"
    assert [tier.host for tier in worker.tiers] == worker.hosts, "a tier has the host blocks of another group"
    for number, tier in enumerate(worker.tiers):
        assert (tier.pool.evicted is not None) == (tier in worker.saved_tiers), "what is evicted is not saved"
        fenced = [fence.groups[number] for fence in worker.fences.values()]
        closed = [block for each in fenced for block in each.blocks.tolist()]
        assert len(closed) == len(set(closed)) == tier.pool.num_fenced, "a block has no fence, or two"
        yield from tier.host.check_pieces((block for each in fenced for block in each.host_blocks), pieces)


def _pinned(worker: Worker) -> list[list[Blocks]]:
    """Blocks of each group that parts hold: those that a disk or another worker reads."""
    return [
        [blocks for part in worker.parts.all for blocks in part.pinned(number)]
        for number in range(len(worker.pools))
    ]


def _check_checkpoints(worker: Worker) -> None:
    if worker.checkpoints is not None:
        written = [order.checkpoint for record in worker.records for order in record.checkpoints]
        read = [each for record in worker.records for each in record.read_checkpoints]
        worker.checkpoints.check_integrity(written, read)


def _check_records(worker: Worker) -> None:
    table, states = worker.table, worker.table.state
    released = {slot for record in worker.records for slot in record.released_slots}
    assert released | set(table.releasing) == set(np.flatnonzero(states == SlotState.RELEASING).tolist())
    for record in worker.records if len(worker.records) > 1 else ():
        has_ended = not record.chunks or states[record.chunks[0].slot] in ENDED
        assert not record.is_solo or has_ended, "a suspect has company"
