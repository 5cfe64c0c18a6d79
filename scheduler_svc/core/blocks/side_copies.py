"""Copies between device and host tier that would hold up a step: they run beside the steps, who needs them waits.

A start that needs many copies, in and out together, is put off: they travel as a group with a *fence*, whose blocks are
neither free nor anybody's until the worker says that it has ended. Then what was fetched is cached, what was saved is
free, and the request that waited is looked at again like any other. It waits once per start only: what has been given
away again meanwhile, or could not be copied, is copied within its step. So nobody waits for ever, and a cancel, a
preemption or a lost worker in between needs no rule of its own.

Others go on meanwhile. Those that go behind it leave it its place in the batch, and the blocks that it lacks besides.
"""

from __future__ import annotations

import numpy as np

from scheduler_svc.core.blocks.fence import Fence
from scheduler_svc.core.blocks.prefix_sharing import Prefix
from scheduler_svc.core.request import Request
from scheduler_svc.core.slots.worker import Worker
from scheduler_svc.core.step.step import StepDecision
from signalbox.protocol.columns import HOST_BIT


def awaits_copies(worker: Worker, request: Request) -> bool:
    """Whether the copies that `request` waits for on `worker` are still under way."""
    fence = request.history.fence
    return fence is not None and worker.fences.get(fence.fence_id) is fence


def find_fence(worker: Worker, prefix: Prefix) -> Fence | None:
    """The copies under way, if any, that fetch the first block which is not on the device, or save the first one that
    is nowhere else."""
    hashes = prefix.hashes
    if not worker.fences or (prefix.num_blocks == len(hashes) and not prefix.host_hits):
        return None
    fetched, saved = hashes[len(prefix.hits)], hashes[prefix.num_blocks : prefix.num_blocks + 1].tolist()
    for fence in worker.fences.values():
        if (fence.hashes == fetched).any() or not fence.saved.keys().isdisjoint(saved):
            return fence
    return None


def count_copies(worker: Worker, prefix: Prefix, num_new: int) -> int:
    """About how many copies it takes to start with `prefix` and `num_new` blocks more."""
    evicted = worker.pool.oldest(max(num_new - worker.pool.num_free, 0))
    return len(prefix.host_hits) + sum(not worker.host.holds(content) for content in evicted)


def copy_aside(worker: Worker, request: Request, prefix: Prefix, num_new: int, step: StepDecision) -> None:
    """Puts the copies that `request` needs into the group of `step`; it is to wait for them. The caller has
    seen that there is room for all of its `num_new` blocks besides the hits."""
    pool, host = worker.pool, worker.host
    if step.fence is None:
        step.fence = worker.fences[step.step_id] = Fence(step.step_id)
    fence = step.fence
    num_fetched, num_idle = len(prefix.host_hits), pool.num_idle(prefix.hits)
    pool.share(prefix.hits)  # not to be evicted for what follows them
    blocks = pool.fence(min(num_fetched, pool.num_free), max(num_new - pool.num_free, 0))
    pool.release(prefix.hits)
    host.pin(prefix.host_hits)
    fence.host_sources += prefix.host_hits
    for source, content in pool.take_evicted():
        target = host.store(content, frozenset())
        if target is not None:
            host.pin([target], are_written=True)
            fence.saved[content] = target
            fence.copies.append((source, target | HOST_BIT))
    fetched = blocks[:num_fetched]
    fence.copies += [(s | HOST_BIT, t) for s, t in zip(prefix.host_hits, fetched.tolist(), strict=True)]
    fence.blocks = np.concatenate((fence.blocks, blocks))
    fence.fetched = np.concatenate((fence.fetched, fetched))
    first = len(prefix.hits)
    fence.hashes = np.concatenate((fence.hashes, prefix.hashes[first : first + num_fetched]))
    fence.owners.append((request, num_new + num_idle - len(blocks)))
    request.history.fence = fence


def end_fence(worker: Worker, fence_id: int, *, failed: bool) -> None:
    """The copies have ended: what they fetched can be hit, what they saved too, and the rest is free. Of a failed group
    nothing can be relied on. News of a fence that is not known is of an older link."""
    fence = worker.fences.pop(fence_id, None)
    if fence is None:
        return
    if failed:
        for content, block in fence.saved.items():
            worker.host.forget(content, block)
    worker.host.unpin([*fence.host_sources, *fence.saved.values()])
    worker.pool.unfence(fence.blocks)
    if not failed and fence_id >= worker.reset_at:
        worker.pool.publish(fence.fetched, fence.hashes)


def reserved_for_others(worker: Worker, request: Request) -> tuple[int, int]:
    """Places and blocks that those who wait for their copies, and go before `request`, will start with."""
    if not worker.fences:
        return 0, 0
    wanted = [
        num_blocks
        for fence in worker.fences.values()
        for owner, num_blocks in fence.owners
        if owner.history.fence is fence and owner.order < request.order and not owner.status.is_finished
    ]
    return len(wanted), sum(wanted)
