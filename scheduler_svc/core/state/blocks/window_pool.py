"""The pool of a group of layers that look back so far and no farther.

Of its cached blocks most lie in the middle of something, where the window of a long prompt has passed. Nobody goes on
from there unless two prompts part at that point; so they are given away before the blocks at which a request ended, or
at which prompts part (WB9).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.state.blocks.block_pool import OUT, BlockPool, BlockRing, Blocks

SHARED_HITS = 2
"""A conversation goes on from its own last blocks once, and never comes back to them; what is shared is found again."""


class WindowPool(BlockPool):
    """A pool with two orders of cached blocks: those that were passed go first, and no host tier saves them."""

    def __init__(self, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self._passed = BlockRing(num_blocks)
        self._is_passed = np.zeros(num_blocks, np.bool_)
        self._num_hits = np.zeros(num_blocks, np.int32)
        """How many requests went on from a block's content."""

    @property
    def num_cached(self) -> int:
        """Blocks without holder whose content can still be hit."""
        return self._cached.num_live + self._passed.num_live

    @property
    def num_available(self) -> int:
        """Blocks that `take` could give."""
        return self._free.num_live + self._cached.num_live + self._passed.num_live

    def take(self, count: int) -> Blocks:
        """Allocates blocks, as every pool does."""
        blocks = super().take(count)
        self._num_hits[blocks] = 0
        return blocks

    def are_private(self, blocks: Blocks) -> bool:
        """Each of `blocks`, which are held, has one holder, and nobody can hit it."""
        return not np.count_nonzero(self._hashed[blocks]) and not np.count_nonzero(
            self.ref_counts[blocks] - 1
        )

    def renew(self, blocks: Blocks) -> Blocks:
        """Allocates private blocks to their own holders once more, for other content."""
        self.generations[blocks] += 1
        self._num_hits[blocks] = 0
        return blocks

    def share(self, blocks: Blocks) -> None:
        """Adds a holder to blocks that were found, and counts that."""
        super().share(blocks)
        self._num_hits[blocks] += 1

    def leave(self, blocks: Blocks, is_wanted: NDArray[np.bool_]) -> None:
        """Removes one holder of each of `blocks`, which a window has passed: those that are not wanted, and from which
        at most one request ever went on, are given away first."""
        is_wanted = is_wanted | (self._num_hits[blocks] >= SHARED_HITS)
        others = blocks
        if np.count_nonzero(is_wanted):
            self.release(blocks[is_wanted])
            others = blocks[~is_wanted]
        left = self.ref_counts[others] - 1
        self.ref_counts[others] = left
        idle = others[left == 0] if np.count_nonzero(left) else others
        hashed = self._hashed[idle]
        if not np.count_nonzero(hashed):  # as of outputs, which nobody goes on from
            self._enqueue(self._free, idle)
            return
        if np.count_nonzero(hashed) < len(idle):
            self._enqueue(self._free, idle[~hashed])
            idle = idle[hashed]
        self._is_passed[idle] = True
        self._enqueue(self._passed, idle)

    def demote(self, block: int) -> None:
        """A block that can be hit has lost its worth, unless several have gone on from it: it is given away before
        others."""
        if self.ref_counts[block] or not self._hashed[block] or self._num_hits[block] >= SHARED_HITS:
            return
        blocks = np.array([block], np.int32)
        self._stamps[blocks] = OUT
        self._leave_cached(blocks)
        self._is_passed[blocks] = True
        self._enqueue(self._passed, blocks)

    def _next_cached(self, count: int) -> Blocks:
        passed = self._passed.peek(count, self._stamps)
        if len(passed) == count:
            return passed
        return np.concatenate((passed, self._cached.peek(count - len(passed), self._stamps)))

    def _num_worthless(self, count: int) -> int:
        return min(count, self._passed.num_live)

    def _pop_cached(self, count: int) -> tuple[Blocks, int]:
        num_passed = min(count, self._passed.num_live)
        if not num_passed:
            return self._cached.pop(count, self._stamps), 0
        passed = self._passed.pop(num_passed, self._stamps)
        self._is_passed[passed] = False
        if num_passed == count:
            return passed, num_passed
        return np.concatenate((passed, self._cached.pop(count - num_passed, self._stamps))), num_passed

    def _leave_cached(self, blocks: Blocks) -> None:
        num_passed = int(np.count_nonzero(self._is_passed[blocks]))
        self._is_passed[blocks] = False
        self._passed.num_live -= num_passed
        self._cached.num_live -= len(blocks) - num_passed

    def _cached_pieces(self) -> Iterator[Blocks]:
        return chain(self._passed.live_pieces(self._stamps), self._cached.live_pieces(self._stamps))
