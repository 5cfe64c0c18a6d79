"""Loads from the disk tier: what a request that is about to start waits for, once, behind a fence (DT3).

What is loaded goes to blocks of the device, as if it had been cached there; then the request is looked at like any
other. So a start knows of two tiers, and the third one only fills the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scheduler_svc.core.blocks.block_pool import Blocks, Hashes
from scheduler_svc.core.blocks.copy_group import NamedBlock
from scheduler_svc.core.blocks.fence import Fence, FencedBlocks
from scheduler_svc.core.blocks.prefix import Prefix
from scheduler_svc.core.blocks.side_copies import end_fence, reserved_for_others
from scheduler_svc.core.blocks.window import longest_without
from scheduler_svc.core.disk.worth import most_load_us
from scheduler_svc.core.request import Request
from scheduler_svc.core.slots.worker import Worker
from scheduler_svc.core.step.step import StepDecision
from signalbox.protocol.block_groups import SPINE


class GroupLoad(NamedTuple):
    """What a longer prefix needs of one group."""

    found: Blocks
    """Blocks that have some of it on the device."""
    names: Hashes
    """Contents that are on disk alone."""


class Load(NamedTuple):
    """What makes a prefix longer."""

    num_blocks: int
    """Blocks of the spine that need no computing then."""
    groups: list[GroupLoad]
    """One for each group, as the worker's `tiers`."""
    most_us: int
    """How long it may take."""

    @property
    def counts(self) -> list[int]:
        """Blocks of each group that are loaded."""
        return [len(group.names) for group in self.groups]


def find_load(worker: Worker, request: Request, prefix: Prefix) -> Load | None:
    """What is to be loaded for `request`, which would start with `prefix`; None: nothing, or it is computed sooner."""
    disk = worker.disk
    if disk is None or disk.is_off or request.history.loaded_on == worker.info.instance:
        return None
    if worker.checkpoints is not None or prefix.num_blocks >= len(prefix.hashes):
        return None
    found = _longest(worker, prefix)
    if found is None:
        return None
    length, groups = found
    counts = [len(group.names) for group in groups]
    num_tokens = (length - prefix.num_blocks) * worker.table.block_size
    most_us = most_load_us(disk.pace, counts, num_tokens, _ahead_us(worker))
    if not most_us or not _has_room(worker, request, groups):
        return None
    return Load(length, groups, most_us)


def _longest(worker: Worker, prefix: Prefix) -> tuple[int, list[GroupLoad]] | None:
    """The longest prefix that device and disk have together, of groups but the spine with the host tier; None: it is
    not longer than `prefix`. Of the spine, nothing behind what is missing on the device counts in the host tier."""
    disk, hashes = worker.disk, prefix.hashes
    assert disk is not None
    num_hits = len(worker.pool.lookup(hashes))
    if num_hits == len(hashes) and not worker.windows:
        return None
    on_device = worker.pool.find(hashes) >= 0
    is_missing = ~(on_device | disk.has(SPINE, hashes))
    length = int(np.argmax(is_missing)) if is_missing.any() else len(hashes)
    lacking = []
    if worker.windows and length > prefix.num_blocks:
        for tier in worker.tiers[SPINE + 1 :]:
            found = tier.find(hashes[:length])
            lacking.append((found.blocks < 0) & (found.host_blocks < 0))
        on_disk = [disk.has(window.number, hashes[:length]) for window in worker.windows]
        missing = [lacks & ~has for lacks, has in zip(lacking, on_disk, strict=True)]
        length = longest_without(worker.windows, missing)
    if length <= prefix.num_blocks:
        return None
    spine = slice(0, length)
    groups = [_group(worker.pool.find(hashes[spine]), hashes[spine], ~on_device[spine])]
    for window, lacks in zip(worker.windows, lacking, strict=True):
        span = slice(window.first_block(length * window.block_size), length)
        groups.append(_group(window.find(hashes[span]), hashes[span], lacks[span]))
    return (length, groups) if any(len(group.names) for group in groups) else None


def _group(blocks: Blocks, hashes: Hashes, lacks: np.ndarray) -> GroupLoad:  # type: ignore[type-arg]
    return GroupLoad(blocks[blocks >= 0], hashes[lacks])


def _ahead_us(worker: Worker) -> float:
    """How long the loads take that are under way."""
    return sum(fence.load_us for fence in worker.fences.values())


def _has_room(worker: Worker, request: Request, groups: list[GroupLoad]) -> bool:
    """Every group has the blocks, those aside that others will start with."""
    _, reserved = reserved_for_others(worker, request)
    return all(
        tier.pool.num_available - tier.pool.num_idle(group.found) - kept >= len(group.names)
        for tier, group, kept in zip(worker.tiers, groups, reserved, strict=True)
    )


def load_aside(
    worker: Worker, request: Request, load: Load, needs: Sequence[int], step: StepDecision
) -> None:
    """Orders with `step` what `request` is to wait for; `needs`: new blocks of each group that it would start with
    now. What loses its place goes out to the host tier with the step."""
    disk = worker.disk
    assert disk is not None
    if step.loads is None:
        groups = [FencedBlocks() for _ in worker.tiers]
        step.loads = worker.fences[-step.step_id] = Fence(-step.step_id, groups=groups)
    fence, left = step.loads, []
    for tier, fenced, group, needed in zip(worker.tiers, fence.groups, load.groups, needs, strict=True):
        pool, count = tier.pool, len(group.names)
        num_idle = pool.num_idle(group.found)
        pool.hold(group.found)  # not to be evicted for what follows them
        blocks = pool.fence(min(count, pool.num_free), max(count - pool.num_free, 0))
        pool.release(group.found)
        fenced.blocks = np.concatenate((fenced.blocks, blocks))
        fenced.fetched = np.concatenate((fenced.fetched, blocks))
        fenced.hashes = np.concatenate((fenced.hashes, group.names))
        names = group.names.tolist()
        fence.loads += [NamedBlock(tier.group, *each) for each in zip(blocks.tolist(), names, strict=True)]
        left.append(max(needed + num_idle - count, 0))
    worker.save_evicted(step)
    fence.load_us += max(disk.pace.load_us(load.counts), 1.0)
    fence.most_us = max(fence.most_us, load.most_us)
    fence.owners.append((request, left))
    request.history.fence, request.history.loaded_on = fence, worker.info.instance


def end_loads(worker: Worker, step_id: int, lost: Sequence[int]) -> None:
    """The loads that a step ordered have ended; `lost` are the numbers of those that did not arrive: they are not
    there. Whoever waited is looked at again, and may wait for copies yet. News of others are of an older link."""
    fence, disk = worker.fences.get(-step_id), worker.disk
    if fence is None or not fence.loads or disk is None:
        return
    missing = {fence.loads[number] for number in lost if number < len(fence.loads)}
    for number, fenced in enumerate(fence.groups):
        gone = [load.name for load in missing if load.group == number]
        disk.remove(number, gone)
        blocks = [load.block for load in missing if load.group == number]
        keep = ~np.isin(fenced.fetched, blocks)
        fenced.fetched, fenced.hashes = fenced.fetched[keep], fenced.hashes[keep]
    worker.stats.num_disk_lost_blocks += len(missing)
    worker.stats.num_disk_loaded_blocks += len(fence.loads) - len(missing)
    worker.stats.num_disk_hit_tokens += len(fence.groups[SPINE].fetched) * worker.table.block_size
    end_fence(worker, -step_id, failed=False)
    for owner, _ in fence.owners:
        if owner.history.fence is fence:
            owner.history.fence = None
