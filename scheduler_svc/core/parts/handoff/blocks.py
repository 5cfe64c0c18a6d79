"""Blocks for a request that a worker is to take over: as many as it has where it runs, and those that it grows into."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scheduler_svc.core.parts.handoff.orders import ImportStart
from scheduler_svc.core.parts.handoff.typed import Handoff
from scheduler_svc.core.state.blocks.block_pool import NO_BLOCKS, Blocks, Hashes
from scheduler_svc.core.state.groups.window import WindowBlocks, longest_hit
from scheduler_svc.core.state.slots.slot_state import SlotState
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.block_groups import SPINE


class Stretches(NamedTuple):
    """Indexes of the first block and behind the last, of each group, the spine's first."""

    firsts: list[int]
    ends: list[int]


def blocks_wanted(source: Worker, slot: int, *, ahead: bool = True) -> Stretches:
    """What another worker needs to go on with what `slot` of `source` will be when it is frozen. With `ahead`, it is
    enough for some steps to come, so that grants follow the source's bound at their leisure; without, for a freeze
    now."""
    table, size = source.table, source.table.block_size
    spine_end = int(table.num_blocks[slot])
    decodes = table.state[slot] == SlotState.DECODE or slot in table.settling
    if decodes:
        more = 1 + int(table.drafts[slot]) + (size if ahead else 0)
        positions = min(int(table.bound[slot]) + more, int(table.limit[slot])) - 1
        spine_end = max(spine_end, -(-positions // size))
    position = int(table.confirmed(np.array([slot]))[0])
    firsts, ends = [0], [spine_end]
    for window in source.windows:
        end = spine_end if decodes else int(window.ends[slot])
        firsts.append(min(window.first_block(position), end))
        ends.append(end)
    return Stretches(firsts, ends)


def num_available(worker: Worker) -> list[int]:
    """Blocks of each group that could be taken."""
    return [pool.num_available for pool in worker.pools]


def has_enough(handoff: Handoff) -> bool:
    """The target has blocks, and was told of them, for what the source's slot will be if it is frozen now (HO3)."""
    if not handoff.has_blocks:
        return handoff.is_target_told
    target, slot = handoff.target, handoff.target_slot
    wanted = blocks_wanted(handoff.source, handoff.source_slot, ahead=False).ends
    have = [int(target.table.num_blocks[slot]), *(int(window.ends[slot]) for window in target.windows)]
    return all(there >= end for there, end in zip(have, wanted, strict=True))


def is_behind(handoff: Handoff) -> bool:
    """The target's grants have to follow those of the source."""
    if not (handoff.has_blocks and handoff.is_target_told):
        return False
    return not has_enough(handoff)


def start_import(handoff: Handoff, step: StepDecision, *, is_enabled: bool) -> ImportStart | None:
    """Gives the target's slot its tables with `step`. What is cached there of the request is shared, if reuse is
    enabled (`is_enabled`). None, and nothing has changed: there are not enough blocks."""
    worker, slot = handoff.target, handoff.target_slot
    if not handoff.has_blocks:
        return ImportStart(slot, NO_BLOCKS, 0, tuple((0, NO_BLOCKS) for _ in worker.windows))
    wanted = blocks_wanted(handoff.source, handoff.source_slot)
    hits, window_hits = _find_hits(handoff, wanted) if is_enabled else (NO_BLOCKS, [])
    num_found = len(hits)
    shared = [hits, *(window_hits or [NO_BLOCKS] * len(worker.windows))]
    for pool, held, first, end in zip(worker.pools, shared, wanted.firsts, wanted.ends, strict=True):
        if max(end - max(first, num_found), 0) + pool.num_idle(held) > pool.num_available:
            return None
    worker.pool.share(hits)
    blocks = np.concatenate((hits, worker.take_blocks(max(wanted.ends[SPINE] - num_found, 0), step)))
    worker.table.set_blocks(slot, blocks, worker.pool.generations[blocks])
    worker.table.note_found(slot, num_found)
    for window, held in zip(worker.windows, shared[SPINE + 1 :], strict=True):
        _start_window(window, handoff, held, num_found, wanted)
    worker.save_evicted(step)
    windows = tuple((int(window.firsts[slot]), window.table(slot).copy()) for window in worker.windows)
    return ImportStart(slot, blocks, num_found, windows)


def _start_window(
    window: WindowBlocks, handoff: Handoff, hits: Blocks, num_found: int, wanted: Stretches
) -> None:
    slot, first, end = handoff.target_slot, wanted.firsts[window.number], wanted.ends[window.number]
    window.pool.share(hits)
    num_prompt = int(handoff.source.table.num_prompt[handoff.source_slot])
    branches = (0, (num_prompt - 1) // window.block_size)
    window.start(slot, max(num_found, first), hits, branches)
    window.extend(slot, max(end - int(window.ends[slot]), 0))


def _find_hits(handoff: Handoff, wanted: Stretches) -> tuple[Blocks, list[Blocks]]:
    """Blocks at the head of the request's table that the target has, and of each window those of them that are looked
    at from where the request stands."""
    worker, hashes = handoff.target, _names(handoff)
    hits, window_hits = worker.pool.lookup(hashes), list[Blocks]()
    if worker.windows:
        length, found = longest_hit(worker.windows, hashes[: len(hits)])
        hits = hits[:length]
        for window, blocks in zip(worker.windows, found, strict=True):
            first, begin = wanted.firsts[window.number], length - len(blocks)
            window_hits.append(blocks[max(first - begin, 0) :])
    return hits, window_hits


def _names(handoff: Handoff) -> Hashes:
    """Names of the blocks that the source has written whole, as far as it has reported."""
    table, slot = handoff.source.table, handoff.source_slot
    confirmed = int(table.confirmed(np.array([slot]))[0])
    return table.hashes(slot, 0, min(int(table.num_hashes[slot]), confirmed // table.block_size))


def follow_source(handoff: Handoff, step: StepDecision) -> bool:
    """Grants the target's slot what the source's has grown into. False: there are not enough blocks."""
    worker, slot = handoff.target, handoff.target_slot
    ends = blocks_wanted(handoff.source, handoff.source_slot).ends
    have = [int(worker.table.num_blocks[slot]), *(int(window.ends[slot]) for window in worker.windows)]
    lacking = [max(end - there, 0) for end, there in zip(ends, have, strict=True)]
    if any(count > free for count, free in zip(lacking, num_available(worker), strict=True)):
        return False
    for _ in range(lacking[SPINE]):
        blocks = worker.take_blocks(1, step)
        worker.table.append_blocks(np.array([slot]), blocks, worker.pool.generations[blocks])
        step.grant(np.array([slot]), blocks)
    for window, count in zip(worker.windows, lacking[SPINE + 1 :], strict=True):
        if count:
            step.grant(np.full(count, slot), window.extend(slot, count), window.number)
    worker.save_evicted(step)
    return True
