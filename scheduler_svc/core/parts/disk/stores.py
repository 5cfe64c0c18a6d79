"""Stores to the disk tier: what requests leave behind, a few blocks at a time, beside the steps (DT4)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from scheduler_svc.core.parts.disk.index import DiskIndex
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE, Blocks
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.parts.disk import NamedBlock

MOST_BLOCKS = 64
"""Blocks that are held at a time because they are being read."""
SPARE_SHARE = 8
"""One block in so many of a group has to be available: what runs is not to be held up for what may run."""


@dataclass
class DiskOrders:
    """Orders of one step, apart from what it fetches."""

    stores: list[NamedBlock] = field(default_factory=list)
    """Blocks to be stored."""
    drops: list[bytes] = field(default_factory=list)
    """Names of contents to be deleted."""
    drops_all: bool = False
    """All contents are to be deleted."""


def order_stores(worker: Worker, disk: DiskIndex, step: StepDecision) -> None:
    """Orders the next stores with `step`, and holds their blocks until they have been read. Behind all else in the
    step: whatever it takes away is gone. Content that is not on the device any more is not stored."""
    drops, drops_all = disk.take_drops()
    if drops or drops_all:
        orders = step.order(DiskOrders)
        orders.drops, orders.drops_all = drops, drops_all
    if not disk.may_store or any(
        pool.num_available * SPARE_SHARE <= pool.num_blocks for pool in worker.pools
    ):
        return
    held: list[Blocks] = []
    stores: list[NamedBlock] = []
    wishes = disk.take_wishes(min(MOST_BLOCKS, worker.num_available // 2))
    for group, tier in enumerate(worker.tiers):
        names = [name for number, name in wishes if number == group]
        blocks = tier.pool.find(np.array(names, HASH_DTYPE))
        is_there = blocks >= 0
        for name, block in zip(names, blocks.tolist(), strict=True):
            if block >= 0:
                stores.append(NamedBlock(group, block, name))
            else:
                disk.not_asked((group, name))
        held.append(blocks[is_there])
        tier.pool.hold(blocks[is_there])
    if stores:
        step.order(DiskOrders).stores = stores
        disk.stores[step.step_id] = held
        worker.stats.num_disk_stored_blocks += len(stores)


def end_stores(worker: Worker, disk: DiskIndex, step_id: int) -> None:
    """What a step ordered to be stored has been read. News of others are of an older link."""
    held = disk.stores.pop(step_id, [])
    for tier, blocks in zip(worker.tiers, held, strict=False):
        tier.pool.release(blocks)


def wish_for(worker: Worker, disk: DiskIndex, slot: int) -> None:
    """What `slot` leaves behind, as far as it is confirmed, is to be stored: all of the spine, and of each group what
    is looked at from where it ends."""
    table = worker.table
    if table.is_spoilt[slot] or table.started_at[slot] < worker.reset_at:
        return
    count = min(int(table.num_hashes[slot]), int(table.confirmed(np.array([slot]))[0]) // table.block_size)
    hashes = table.hashes(slot, 0, count)
    disk.wish(0, hashes)
    for window in worker.windows:
        disk.wish(window.number, hashes[int(window.firsts[slot]) : int(window.ends[slot])])
