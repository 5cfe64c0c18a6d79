"""One group's blocks on the device and in the host tier, and what of a prefix is found in the two."""

from __future__ import annotations

from collections.abc import Set
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from scheduler_svc.core.state.blocks.block_pool import NO_BLOCKS, BlockPool, Blocks, Hashes
from scheduler_svc.core.state.blocks.copy_group import BlockCopy
from scheduler_svc.core.state.blocks.host_cache import HostCache
from signalbox.protocol.columns import HOST_BIT


class Found(NamedTuple):
    """Blocks of one group with contents in a row, each on the device or in the host tier."""

    blocks: Blocks
    """On the device; -1: it is in the host tier."""
    host_blocks: Blocks
    """In the host tier; -1: it is on the device."""

    @classmethod
    def on(cls, blocks: Blocks) -> Found:
        """All of them are on the device."""
        return cls(blocks, np.full(len(blocks), -1, np.int32))

    @property
    def on_device(self) -> Blocks:
        """Blocks of the device, in order."""
        return self.blocks[self.blocks >= 0]

    @property
    def fetched(self) -> list[int]:
        """Host blocks, in order."""
        found: list[int] = self.host_blocks[self.blocks < 0].tolist()
        return found


NOTHING_FOUND = Found(NO_BLOCKS, NO_BLOCKS)


class Tier(NamedTuple):
    """The two places of a group's content."""

    group: int
    """Its number; that behind the last group: checkpoints."""
    pool: BlockPool
    host: HostCache

    def find(self, hashes: Hashes) -> Found:
        """Where each of these contents is: on the device, else in the host tier; -1 in both: nowhere."""
        blocks = self.pool.find(hashes)
        host_blocks = np.full(len(hashes), -1, np.int32)
        missing = np.flatnonzero(blocks < 0)
        if len(missing) and len(self.host):
            host_blocks[missing] = self.host.find(hashes[missing].tolist())
        return Found(blocks, host_blocks)

    def save_evicted(self, pinned: Set[int] = frozenset()) -> list[BlockCopy]:
        """The copies that save what has lost its place on the device since the last call, before it is overwritten. The
        host blocks `pinned` are about to be read."""
        evicted = self.pool.take_evicted()
        stored = self.host.store_all(map(itemgetter(1), evicted), pinned)
        copies = []
        for (block, _), target in zip(evicted, stored, strict=True):
            if target is not None:
                copies.append(BlockCopy(block, target | HOST_BIT, self.group))
        return copies

    def take_for(self, found: Found, hashes: Hashes) -> tuple[Blocks, list[BlockCopy]]:
        """Holds what was found, whose contents are `hashes`, on the device: what is in the host tier gets blocks, which
        the pool has. Returns all of them in order, and the copies ahead of all work of the step."""
        self.pool.share(found.on_device)
        host_blocks = found.fetched
        if not host_blocks:
            return found.blocks, []
        fresh = self.pool.take(len(host_blocks))
        copies = self.save_evicted(frozenset(host_blocks))
        copies += fetches(host_blocks, fresh, self.group)
        is_fetched = found.blocks < 0
        self.pool.publish(fresh, hashes[is_fetched])
        blocks = found.blocks.copy()
        blocks[is_fetched] = fresh
        return blocks, copies


def fetches(host_blocks: list[int], blocks: Blocks, group: int) -> list[BlockCopy]:
    """The copies of `host_blocks` to `blocks` of the device."""
    pairs = zip(host_blocks, blocks.tolist(), strict=True)
    return [BlockCopy(source | HOST_BIT, target, group) for source, target in pairs]
