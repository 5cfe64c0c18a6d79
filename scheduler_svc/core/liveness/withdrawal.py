"""Blocks that have turned out to be wrong: what a request has published whose numbers were not finite (N2).

A block of one prefix stands at the same place of every table that shares it, and tables stay readable when their
requests have ended. So whoever read such a block, and published what it made of that, is found in one column.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.cluster.register import Register
from scheduler_svc.core.parts.disk.part import disk_of, drop_on_disk
from scheduler_svc.core.parts.handoff.part import handoffs_of
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE, BlockPool, Blocks, Hashes
from scheduler_svc.core.state.groups.checkpoints import Checkpoints
from scheduler_svc.core.state.groups.window import WindowBlocks
from scheduler_svc.core.state.slots.slot_state import SlotState
from scheduler_svc.core.state.steps.step import Slots
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step.report import still_theirs
from signalbox.protocol.enums import LossCause


def withdraw(worker: Worker, slots: Iterable[int], register: Register) -> list[bytes]:
    """What the requests of `slots`, which have failed, have published since they last started is forgotten, on the
    device and in the host tier, and what others have made of it. Those of the others that run start anew. Returns the
    names of what was forgotten: requests may have taken it along to other workers."""
    slots, names = list(slots), set[bytes]()
    spoilt = _forget_all(worker, [(slot, int(worker.table.num_found[slot])) for slot in slots], names)
    _drop_on_disk(worker, {*slots, *spoilt}, [])
    _start_anew(worker, spoilt, register)
    return sorted(names)


def withdraw_named(worker: Worker, names: list[bytes], register: Register) -> None:
    """What another worker has forgotten is forgotten here, too: by name, so whoever has computed such content here
    itself is not told apart from who took it over, and starts anew as well (HO12)."""
    hashes = np.frombuffer(b"".join(names), HASH_DTYPE)
    bad = worker.pool.owners(hashes)
    seeds = []
    for slot in _holders(worker, bad):
        places = np.flatnonzero(np.isin(worker.table.table(slot), bad))
        seeds.append((slot, int(places[0])))
    spoilt = {*_forget_all(worker, seeds, set()), *(slot for slot, _ in seeds if _runs(worker, slot))}
    _forget_saved(worker, hashes)
    for pool in worker.pools:
        pool.forget(pool.owners(hashes))
    if worker.checkpoints is not None:
        worker.checkpoints.pool.forget(worker.checkpoints.pool.owners(hashes))
    _drop_on_disk(worker, spoilt, names)
    _start_anew(worker, sorted(spoilt), register)


def _start_anew(worker: Worker, spoilt: list[int], register: Register) -> None:
    for slot in spoilt:
        worker.table.is_spoilt[slot] = True
        reason = f"blocks that it shared on worker {worker.info.worker_id} have turned out to be wrong"
        register.take_back(worker.request(slot), reason, LossCause.BAD_BLOCKS)
    for slot in spoilt:
        # What is reported of it from now on is not published: steps of it may be in flight.
        blocks = worker.table.blocks[slot]
        worker.pool.outdate(blocks[worker.table.generations[slot] == worker.pool.generations[blocks]])
        for window in worker.windows:
            blocks = window.blocks[slot]
            window.pool.outdate(blocks[window.generations[slot] == window.pool.generations[blocks]])


def _drop_on_disk(worker: Worker, slots: Iterable[int], also: Iterable[bytes]) -> None:
    """A disk has none of what these slots have read or published, and nothing of these names: what a request has read
    may be at fault, too, and would be for ever (DT6)."""
    table, names = worker.table, set(also)
    for slot in slots:
        names.update(table.hashes(slot, 0, int(table.num_hashes[slot])).tolist())
    if names:
        drop_on_disk(worker, sorted(names))


def _forget_all(worker: Worker, seeds: Iterable[tuple[int, int]], names: set[bytes]) -> list[int]:
    """Forgets what each of `seeds`, (slot, index), has published from there on, and adds to `names` what it is called;
    returns the slots of those others that run."""
    todo = list(seeds)
    seen, spoilt = {slot for slot, _ in todo}, list[int]()
    while todo:
        slot, first = todo.pop()
        names.update(worker.table.hashes(slot, first, int(worker.table.num_hashes[slot])).tolist())
        bad = _forget(worker, slot, first)
        others = {*_readers(worker, slot, first), *_holders(worker, bad)} - seen
        for window in worker.windows:
            others |= {*_holders_in(worker, window, _forget_in(worker, window, slot, first))} - seen
        todo += [(other, first) for other in others]
        if worker.checkpoints is not None:
            # The blocks ahead of a state may be another's, and good.
            behind = {*_forget_states(worker, worker.checkpoints, slot, first)} - seen - others
            todo += [(other, int(worker.table.num_found[other])) for other in behind]
            others |= behind
        seen |= others
        spoilt += [other for other in others if _runs(worker, other)]
        handoffs = handoffs_of(worker)
        for other in others & handoffs.imports.keys():
            handoffs.broken.append((handoffs.imports[other], "withdrawn"))
    return sorted(spoilt)


def _forget(worker: Worker, slot: int, first: int) -> Blocks:
    """Forgets the content of the blocks of `slot` from `first` on, and returns those that had it."""
    table, pool = worker.table, worker.pool
    rows, indexes = _published(worker, slot, first)
    hashes = table.hashes_at(rows, indexes)
    bad = _with_content(pool, table.blocks[rows, indexes], hashes, still_theirs(worker, rows, indexes))
    if (worker.has_host_tier or disk_of(worker) is not None) and len(hashes):
        _forget_saved(worker, hashes)
        # It may have been saved, and fetched for somebody else.
        bad = np.union1d(bad, pool.owners(hashes)).astype(np.int32)
    pool.forget(bad)
    return bad


def _forget_in(worker: Worker, window: WindowBlocks, slot: int, first: int) -> Blocks:
    """As `_forget`, in another group than the spine."""
    rows, indexes = _published(worker, slot, first)
    hashes = worker.table.hashes_at(rows, indexes)
    bad = _with_content(window.pool, window.blocks[rows, indexes], hashes, window.still_theirs(rows, indexes))
    if (worker.hosts[window.number].num_blocks or disk_of(worker) is not None) and len(hashes):
        bad = np.union1d(bad, window.pool.owners(hashes)).astype(np.int32)
    window.pool.forget(bad)
    return bad


def _forget_states(worker: Worker, checkpoints: Checkpoints, slot: int, first: int) -> list[int]:
    """Forgets the recurrent states behind the blocks of `slot` from `first` on, and returns the slots that run and have
    gone on from one of them."""
    bad = checkpoints.pool.owners(worker.table.hashes(slot, first, int(worker.table.num_hashes[slot])))
    checkpoints.pool.forget(bad)
    running = np.flatnonzero(worker.table.num_blocks).tolist()
    return [other for other in running if checkpoints.origin_of(other) in bad.tolist()]


def _published(worker: Worker, slot: int, first: int) -> tuple[Slots, Slots]:
    """Rows and columns of the blocks of `slot` from `first` on whose names are known."""
    indexes = np.arange(first, int(worker.table.num_hashes[slot]))
    return np.full(len(indexes), slot), indexes


def _with_content(pool: BlockPool, blocks: Blocks, hashes: Hashes, is_theirs: NDArray[np.bool_]) -> Blocks:
    """Blocks that are theirs still, and have the content that `hashes` name."""
    bad: Blocks = blocks[is_theirs & pool.has_content[blocks] & (pool.contents(blocks) == hashes)]
    return bad


def _holders_in(worker: Worker, window: WindowBlocks, blocks: Blocks) -> list[int]:
    """Slots that run with one of `blocks` in their tables of a group."""
    if not len(blocks):
        return []
    running = np.flatnonzero(worker.table.num_blocks).tolist()
    return [slot for slot in running if np.isin(window.table(slot), blocks).any()]


def _forget_saved(worker: Worker, hashes: Hashes) -> None:
    """The host tier has none of it in any group, and what is being fetched from there is not published."""
    for host in worker.hosts:
        for content in hashes.tolist():
            host.drop(content)
    for fenced in (group for fence in worker.fences.values() for group in fence.groups):
        keep = ~np.isin(fenced.hashes, hashes)
        fenced.fetched, fenced.hashes = fenced.fetched[keep], fenced.hashes[keep]


def _readers(worker: Worker, slot: int, first: int) -> list[int]:
    """Slots whose tables have, or had when they were last used, blocks of `slot` from `first` on."""
    table, end = worker.table, int(worker.table.num_hashes[slot])
    if first >= end:
        return []
    rows = np.flatnonzero(table.num_hashes > first)
    columns = np.full(len(rows), first)
    rows = rows[table.hashes_at(rows, columns) == table.hashes_at(np.array([slot]), np.array([first]))]
    span = slice(first, end)
    same = (table.blocks[rows, span] == table.blocks[slot, span]) & (
        table.generations[rows, span] == table.generations[slot, span]
    )
    readers: list[int] = rows[same.any(axis=1)].tolist()
    return readers


def _holders(worker: Worker, blocks: Blocks) -> list[int]:
    """Slots that run with one of `blocks` in their tables."""
    if not len(blocks):
        return []
    is_bad = np.zeros(worker.pool.num_blocks, np.bool_)
    is_bad[blocks] = True
    running = np.flatnonzero(worker.table.num_blocks).tolist()
    return [slot for slot in running if is_bad[worker.table.table(slot)].any()]


def _runs(worker: Worker, slot: int) -> bool:
    return bool(worker.table.state[slot] in (SlotState.PREFILL, SlotState.DECODE))
