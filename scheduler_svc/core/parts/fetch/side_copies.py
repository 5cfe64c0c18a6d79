"""Copies between device and host tier that would hold up a step: they run beside the steps, who needs them waits.

A start that needs many copies, in and out together, is put off: they travel as a group with a *fence*, whose blocks are
neither free nor anybody's until the worker says that it has ended. Then what was fetched is cached, what was saved is
free, and the request that waited is looked at again like any other. It waits once per start only: what has been given
away again meanwhile, or could not be copied, is copied within its step. So nobody waits for ever, and a cancel, a
preemption or a lost worker in between needs no rule of its own.

Others go on meanwhile. Those that go behind it leave it its place in the batch, and the blocks that it lacks besides.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scheduler_svc.core.state.blocks.block_pool import Hashes
from scheduler_svc.core.state.blocks.copy_group import BlockCopy
from scheduler_svc.core.state.blocks.tier import Found, Tier, fetches
from scheduler_svc.core.state.groups.prefix import Prefix
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.steps.fence import Fence, FencedBlocks
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.columns import HOST_BIT


def awaits_copies(worker: Worker, request: Request) -> bool:
    """Whether the copies that `request` waits for on `worker` are still under way."""
    fence = request.history.fence
    return fence is not None and worker.fences.get(fence.fence_id) is fence


def find_fence(worker: Worker, prefix: Prefix) -> Fence | None:
    """The copies under way, if any, that bring something which `prefix` lacks on the device, or save something that is
    nowhere else: the next block of the spine, or, of the other groups, what is looked at from where the prefix or the
    spine ends."""
    if not worker.fences or (prefix.num_blocks == len(prefix.hashes) and not prefix.num_from_host):
        return None
    lacking = _lacking(worker, prefix)
    for fence in worker.fences.values():
        if any(group.brings_any(hashes) for group, hashes in zip(fence.groups, lacking, strict=True)):
            return fence
    return None


def _lacking(worker: Worker, prefix: Prefix) -> list[Hashes]:
    """Contents of each group that `prefix` would go on from, and that are not on the device."""
    hashes, size = prefix.hashes, worker.table.block_size
    spine_end = max(prefix.num_blocks, prefix.branch)
    next_ones = sorted({len(prefix.hits), spine_end} if prefix.host_hits else {spine_end})
    lacking = [hashes[[index for index in next_ones if index < len(hashes)]]]
    ends = sorted({prefix.num_blocks, spine_end})
    for window in worker.windows:
        indexes = sorted({index for end in ends for index in range(window.first_block(end * size), end)})
        names = hashes[indexes]
        lacking.append(names[window.find(names) < 0])
    if worker.checkpoints is not None:
        stride = worker.checkpoints.stride
        places = [end // stride * stride - 1 for end in ends if end >= stride]
        names = hashes[places]
        lacking.append(names[worker.checkpoints.pool.find(names) < 0])
    return lacking


def count_copies(worker: Worker, prefix: Prefix, needs: Sequence[int]) -> int:
    """About how many copies it takes to start with `prefix` and so many new blocks of each group as it `needs`."""
    count = 0
    for tier, found, num_new in zip(
        worker.tiers, prefix.found(worker.windows, worker.checkpoints), needs, strict=True
    ):
        count += len(found.fetched)
        if tier.host.num_blocks:
            evicted = tier.pool.oldest(max(num_new - tier.pool.num_free, 0))
            count += sum(not tier.host.holds(content) for content in evicted)
    return count


def copy_aside(
    worker: Worker, request: Request, prefix: Prefix, needs: Sequence[int], step: StepDecision
) -> None:
    """Puts the copies that `request` needs into the group of `step`; it is to wait for them. The caller has seen that
    there is room for all the new blocks that it `needs` of each group besides the hits."""
    tiers, found = worker.tiers, prefix.found(worker.windows, worker.checkpoints)
    if step.fence is None:
        groups = [FencedBlocks() for _ in tiers]
        step.fence = worker.fences[step.step_id] = Fence(step.step_id, groups=groups)
    fence, left = step.fence, []
    for tier, fenced, each, num_new in zip(tiers, fence.groups, found, needs, strict=True):
        left.append(_fence_off(worker, tier, fence, fenced, each, prefix.names_of(each), num_new))
    fence.owners.append((request, left))
    request.history.fence = fence


def _fence_off(
    worker: Worker, tier: Tier, fence: Fence, fenced: FencedBlocks, found: Found, hashes: Hashes, num_new: int
) -> int:
    """Puts the copies of one group into `fence`. Returns how many more blocks the request starts with."""
    pool, host, host_hits = tier.pool, tier.host, found.fetched
    num_idle = pool.num_idle(found.on_device)
    if not host.num_blocks:
        return num_new + num_idle
    pool.hold(found.on_device)  # not to be evicted for what follows them
    blocks = pool.fence(min(len(host_hits), pool.num_free), max(num_new - pool.num_free, 0))
    pool.release(found.on_device)
    host.pin(host_hits)
    fenced.host_sources += host_hits
    copies = []
    for source, content in pool.take_evicted():
        target = host.store(content, frozenset())
        if target is not None:
            host.pin([target], are_written=True)
            fenced.saved[content] = target
            copies.append(BlockCopy(source, target | HOST_BIT, tier.group))
    fetched = blocks[: len(host_hits)]
    copies += fetches(host_hits, fetched, tier.group)
    worker.add_copies(tier, copies, fence.copies)
    fenced.blocks = np.concatenate((fenced.blocks, blocks))
    fenced.fetched = np.concatenate((fenced.fetched, fetched))
    fenced.hashes = np.concatenate((fenced.hashes, hashes[found.blocks < 0]))
    return num_new + num_idle - len(blocks)


def end_fence(worker: Worker, fence_id: int, *, failed: bool) -> None:
    """The copies have ended: what they fetched can be hit, what they saved too, and the rest is free. Of a failed group
    nothing can be relied on. News of a fence that is not known is of an older link."""
    fence = worker.fences.pop(fence_id, None)
    if fence is None:
        return
    for tier, fenced in zip(worker.tiers, fence.groups, strict=True):
        if failed:
            for content, block in fenced.saved.items():
                tier.host.forget(content, block)
        tier.host.unpin(fenced.host_blocks)
        tier.pool.unfence(fenced.blocks)
        if not failed and abs(fence_id) >= worker.reset_at:
            tier.pool.publish(fenced.fetched, fenced.hashes)


def reserved_for_others(worker: Worker, request: Request) -> tuple[int, list[int]]:
    """Places, and blocks of each group, that those who wait for their copies, and go before `request`, will start
    with."""
    if not worker.fences:
        return 0, worker.nothing_reserved
    wanted = [
        needs
        for fence in worker.fences.values()
        for owner, needs in fence.owners
        if owner.history.fence is fence and owner.order < request.order and not owner.status.is_finished
    ]
    return len(wanted), [sum(column) for column in zip(*wanted, strict=True)] or worker.nothing_reserved
