"""What a place beside device and host tier, a disk or another worker, has of a prompt, and blocks for it (DT3, PB2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.parts.fetch.side_copies import reserved_for_others
from scheduler_svc.core.state.blocks.block_pool import Blocks, Hashes
from scheduler_svc.core.state.groups.prefix import Prefix
from scheduler_svc.core.state.groups.window import longest_without
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.steps.fence import Fence, FencedBlocks
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.block_groups import SPINE

Has = Callable[[int, Hashes], NDArray[np.bool_]]
"""A callable that says which contents of a group the place has."""


class GroupLack(NamedTuple):
    """What a longer prefix needs of one group."""

    found: Blocks
    """Blocks that have some of it on the device."""
    names: Hashes
    """Contents that are in the other place alone."""


class LongerPrefix(NamedTuple):
    """A prefix with the help of another place."""

    num_blocks: int
    """Blocks of the spine that need no computing then."""
    groups: list[GroupLack]
    """One for each group, as the worker's `tiers`."""

    @property
    def counts(self) -> list[int]:
        """Blocks of each group that are brought."""
        return [len(group.names) for group in self.groups]


def may_be_longer(worker: Worker, request: Request, prefix: Prefix) -> bool:
    """Another place is looked at for `request`: once per start, and not where recurrent states are needed."""
    was_brought = request.history.loaded_on == worker.info.instance
    return not (was_brought or worker.checkpoints is not None or prefix.num_blocks >= len(prefix.hashes))


def find_longer(worker: Worker, prefix: Prefix, has: Has) -> LongerPrefix | None:
    """The longest prefix that device and the other place have together, of groups but the spine with the host tier;
    None: it is not longer than `prefix`. Of the spine, nothing behind what is missing on the device counts in the host
    tier."""
    hashes = prefix.hashes
    own = worker.pool.find(hashes)
    on_device = own >= 0
    if on_device.all() and not worker.windows:
        return None
    is_missing = ~on_device
    is_missing[is_missing] = ~has(SPINE, hashes[is_missing])
    length = int(np.argmax(is_missing)) if is_missing.any() else len(hashes)
    lacking = []
    if worker.windows and length > prefix.num_blocks:
        for tier in worker.tiers[SPINE + 1 :]:
            found = tier.find(hashes[:length])
            lacking.append((found.blocks < 0) & (found.host_blocks < 0))
        elsewhere = [has(window.number, hashes[:length]) for window in worker.windows]
        missing = [lacks & ~has_it for lacks, has_it in zip(lacking, elsewhere, strict=True)]
        length = longest_without(worker.windows, missing)
    if length <= prefix.num_blocks:
        return None
    spine = slice(0, length)
    groups = [_group(own[spine], hashes[spine], ~on_device[spine])]
    for window, lacks in zip(worker.windows, lacking, strict=True):
        span = slice(window.first_block(length * window.block_size), length)
        groups.append(_group(window.find(hashes[span]), hashes[span], lacks[span]))
    return LongerPrefix(length, groups) if any(len(group.names) for group in groups) else None


def _group(blocks: Blocks, hashes: Hashes, lacks: NDArray[np.bool_]) -> GroupLack:
    return GroupLack(blocks[blocks >= 0], hashes[lacks])


def has_room(worker: Worker, request: Request, groups: Sequence[GroupLack]) -> bool:
    """Every group has the blocks, those aside that others will start with."""
    _, reserved = reserved_for_others(worker, request)
    return all(
        tier.pool.num_available - tier.pool.num_idle(group.found) - kept >= len(group.names)
        for tier, group, kept in zip(worker.tiers, groups, reserved, strict=True)
    )


def begin_fence(worker: Worker, step: StepDecision, source: str) -> Fence:
    """The fence of what `step` brings from another place, beside the steps; `source`: name of the part that brings
    it."""
    assert step.fetch is None or step.fetch.source == source, "two sources fetch with one step"
    if step.fetch is None:
        groups = [FencedBlocks() for _ in worker.tiers]
        step.fetch = worker.fences[-step.step_id] = Fence(-step.step_id, groups=groups, source=source)
    return step.fetch


def bring_aside(
    worker: Worker,
    request: Request,
    groups: Sequence[GroupLack],
    needs: Sequence[int],
    step: StepDecision,
    source: str,
) -> list[Blocks]:
    """Takes blocks for what `groups` lack, which there is room for, behind the fence of `step`, which `request` is to
    wait for; `needs`: new blocks of each group that it would start with now. What loses its place goes out to the host
    tier with the step. Returns the blocks of each group, in the order of the names."""
    fence, left, taken = begin_fence(worker, step, source), [], []
    for tier, fenced, group, needed in zip(worker.tiers, fence.groups, groups, needs, strict=True):
        pool, count = tier.pool, len(group.names)
        num_idle = pool.num_idle(group.found)
        pool.hold(group.found)  # not to be evicted for what follows them
        blocks = pool.fence(min(count, pool.num_free), max(count - pool.num_free, 0))
        pool.release(group.found)
        fenced.blocks = np.concatenate((fenced.blocks, blocks))
        fenced.fetched = np.concatenate((fenced.fetched, blocks))
        fenced.hashes = np.concatenate((fenced.hashes, group.names))
        taken.append(blocks)
        left.append(max(needed + num_idle - count, 0))
    worker.save_evicted(step)
    fence.owners.append((request, left))
    request.history.fence, request.history.loaded_on = fence, worker.info.instance
    return taken


def stop_waiting(fence: Fence) -> None:
    """Whoever waited is looked at again, and may wait for copies yet."""
    for owner, _ in fence.owners:
        if owner.history.fence is fence:
            owner.history.fence = None
