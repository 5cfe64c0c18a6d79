"""Loads from the disk tier: what a request that is about to start waits for, once, behind a fence (DT3).

What is loaded goes to blocks of the device, as if it had been cached there; then the request is looked at like any
other. So a start knows of two tiers, and the third one only fills the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scheduler_svc.core.parts.disk.index import DiskIndex
from scheduler_svc.core.parts.disk.worth import most_load_us
from scheduler_svc.core.parts.fetch.longer_prefix import (
    LongerPrefix,
    begin_fence,
    bring_aside,
    find_longer,
    has_room,
    may_be_longer,
    stop_waiting,
)
from scheduler_svc.core.parts.fetch.side_copies import end_fence
from scheduler_svc.core.state.groups.prefix import Prefix
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.block_groups import SPINE
from signalbox.protocol.parts.disk import NamedBlock

DISK = "disk"
"""Name of the part."""


class Load(NamedTuple):
    """What makes a prefix longer."""

    longer: LongerPrefix
    most_us: int
    """How long it may take."""


def find_load(worker: Worker, disk: DiskIndex, request: Request, prefix: Prefix) -> Load | None:
    """What is to be loaded for `request`, which would start with `prefix`; None: nothing, or it is computed sooner."""
    if disk.is_off or not may_be_longer(worker, request, prefix):
        return None
    longer = find_longer(worker, prefix, disk.has)
    if longer is None:
        return None
    num_tokens = (longer.num_blocks - prefix.num_blocks) * worker.table.block_size
    most_us = most_load_us(disk.pace, longer.counts, num_tokens, _ahead_us(worker))
    if not most_us or not has_room(worker, request, longer.groups):
        return None
    return Load(longer, most_us)


def _ahead_us(worker: Worker) -> float:
    """How long the loads take that are under way."""
    return sum(fence.load_us for fence in worker.fences.values())


def load_aside(
    worker: Worker, disk: DiskIndex, request: Request, load: Load, needs: Sequence[int], step: StepDecision
) -> None:
    """Orders with `step` what `request` is to wait for; `needs`: see `bring_aside`."""
    longer = load.longer
    taken = bring_aside(worker, request, longer.groups, needs, step, DISK)
    fence = begin_fence(worker, step, DISK)
    for tier, group, blocks in zip(worker.tiers, longer.groups, taken, strict=True):
        names = group.names.tolist()
        fence.loads += [NamedBlock(tier.group, *each) for each in zip(blocks.tolist(), names, strict=True)]
    fence.load_us += max(disk.pace.load_us(longer.counts), 1.0)
    fence.most_us = max(fence.most_us, load.most_us)


def end_loads(worker: Worker, disk: DiskIndex, step_id: int, lost: Sequence[int]) -> None:
    """The loads that a step ordered have ended; `lost` are the numbers of those that did not arrive: they are not
    there. Whoever waited is looked at again, and may wait for copies yet. News of others are of an older link."""
    fence = worker.fences.get(-step_id)
    if fence is None or not fence.loads:
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
    stop_waiting(fence)
