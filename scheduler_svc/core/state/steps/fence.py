"""A group of copies that a worker makes beside its steps, and what waits for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE, NO_BLOCKS, Blocks, Hashes
from scheduler_svc.core.state.blocks.copy_group import CopyGroup
from scheduler_svc.core.state.requests.request import Request


@dataclass(eq=False)
class FencedBlocks:
    """What of one group of blocks is closed to others until the copies have ended."""

    blocks: Blocks = field(default_factory=lambda: NO_BLOCKS)
    """Blocks of the device that the copies read or write. Nobody else may do so."""
    fetched: Blocks = field(default_factory=lambda: NO_BLOCKS)
    """Blocks of the device that get content from the host tier."""
    hashes: Hashes = field(default_factory=lambda: np.empty(0, HASH_DTYPE))
    """The content that `fetched` get, block by block."""
    host_sources: list[int] = field(default_factory=list)
    saved: dict[bytes, int] = field(default_factory=dict)
    """Content that goes to the host tier, and the host block that gets it."""

    @property
    def host_blocks(self) -> list[int]:
        """All that it reads or writes in the host tier."""
        return [*self.host_sources, *self.saved.values()]

    def brings_any(self, hashes: Hashes) -> bool:
        """Whether one of these contents is being fetched, or saved."""
        if not len(self.hashes) and not self.saved:
            return False
        return bool(np.isin(hashes, self.hashes).any()) or not self.saved.keys().isdisjoint(hashes.tolist())


@dataclass(eq=False)
class Fence(CopyGroup):
    """A group of copies, with what is closed to others until they have ended."""

    groups: list[FencedBlocks] = field(default_factory=list)
    """By group of blocks, as the worker's `tiers`."""
    source: str = ""
    """Name of the part that brings its blocks; empty: they are copied from the host tier, or to it."""
    load_us: float = 0.0
    """How long its loads take, about, in microseconds; 0: it has none."""
    most_us: int = 0
    """How long they may take."""
    pull: Any = None
    """The pull that brings what it brings, a `PullOf`; None: a disk does, or there are copies."""
    owners: list[tuple[Request, list[int]]] = field(default_factory=list)
    """Requests for which the copies are made, and how many more blocks of each group each of them starts with."""
