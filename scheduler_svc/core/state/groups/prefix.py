"""What the caches of a worker hold of the first tokens of a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE, NO_BLOCKS, Blocks, Hashes
from scheduler_svc.core.state.blocks.tier import NOTHING_FOUND, Found
from scheduler_svc.core.state.groups.checkpoints import Checkpoints
from scheduler_svc.core.state.groups.window import WindowBlocks


class Prefix(NamedTuple):
    """What the caches hold of the first tokens of a request."""

    hits: Blocks
    """Cached blocks on the device that begin the request's prompt."""
    host_hits: list[int]
    """Host blocks with what follows them."""
    hashes: Hashes
    """Contents of the blocks that could be hit, as far as they are known."""
    branch: int = 0
    """How many blocks the spine alone has, where other groups have lost what is looked back at, or no state is kept."""
    window_hits: tuple[Found, ...] = ()
    """In each group but the spine, the blocks that the next query looks back at. Empty: no groups, or no hits."""
    state: Found | None = None
    """The checkpoint of the recurrent state behind all that; None: there is none."""
    num_from_host: int = 0
    """Blocks that need no computing thanks to the host tier."""

    @property
    def num_blocks(self) -> int:
        """Blocks that need no computing."""
        return len(self.hits) + len(self.host_hits)

    def found(self, windows: Sequence[WindowBlocks], checkpoints: Checkpoints | None) -> list[Found]:
        """What is found in each group of a worker, its checkpoints last, if it has any."""
        spine = self._found_in_spine() if self.num_blocks else NOTHING_FOUND
        found = [spine, *(self.window_hits or [NOTHING_FOUND] * len(windows))]
        return found if checkpoints is None else [*found, self.state or NOTHING_FOUND]

    def _found_in_spine(self) -> Found:
        blocks = np.concatenate((self.hits, np.full(len(self.host_hits), -1, np.int32)))
        host_blocks = np.concatenate(
            (np.full(len(self.hits), -1, np.int32), np.array(self.host_hits, np.int32))
        )
        return Found(blocks, host_blocks)

    def names_of(self, found: Found) -> Hashes:
        """The contents of what is found in one group: those of the last blocks of the prefix."""
        names: Hashes = self.hashes[self.num_blocks - len(found.blocks) : self.num_blocks]
        return names


NO_PREFIX = Prefix(NO_BLOCKS, [], np.empty(0, HASH_DTYPE))
"""The prefix of a request that no cached block can serve."""
