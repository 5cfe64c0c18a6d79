"""The host tier: content of a group's blocks that the device evicted, second level of the prefix cache.

It is also how a preempted request is swapped: its blocks stay findable on the device until they are given away, are
copied out then, and are copied back when it is resumed; only what was never sealed is computed again. There is no other
bookkeeping of a swap, so nothing can be forgotten or leak: content that the host tier had to drop is recomputed.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Set
from itertools import chain, islice

import numpy as np

from scheduler_svc.core.state.blocks.pieces import OBJECT_COST, PIECE_COST, Pieces, do_all


class HostCache:
    """Content hashes of `num_blocks` host blocks, in the order of last use."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._blocks: OrderedDict[bytes, int] = OrderedDict()
        self._free: list[int] = []
        self._num_touched = 0
        """Blocks that were ever used: those behind them are free, too."""
        self._pins: Counter[int] = Counter()
        """Blocks that are copied beside the steps, and by how many groups of copies."""
        self._arriving: set[int] = set()
        """Pinned blocks that are written: their content cannot be hit yet."""
        self._left: set[int] = set()
        """Pinned blocks whose content was forgotten meanwhile: free when nothing copies them any more."""

    def __len__(self) -> int:
        return len(self._blocks)

    def lookup(self, hashes: list[bytes]) -> list[int]:
        """Host blocks of the longest known prefix of `hashes`."""
        found: list[int] = []
        for content in hashes:
            block = self._blocks.get(content)
            if block is None or block in self._arriving:
                break
            found.append(block)
        return found

    def find(self, hashes: list[bytes]) -> list[int]:
        """The host block with each of these contents; -1: there is none, or it is still written."""
        found = [self._blocks.get(content, -1) for content in hashes]
        return [-1 if block in self._arriving else block for block in found] if self._arriving else found

    def touch(self, hashes: list[bytes]) -> None:
        """Counts those of these contents that are here as used."""
        for content in hashes:
            if content in self._blocks:
                self._blocks.move_to_end(content)

    def store(self, content: bytes, pinned: Set[int]) -> int | None:
        """A host block for `content`, taken from what was unused for longest; None when the content is here already or
        only `pinned` blocks (about to be read) could be taken."""
        return self.store_all([content], pinned)[0]

    def store_all(self, contents: Iterable[bytes], pinned: Set[int]) -> list[int | None]:
        """As `store`, for one after the other."""
        stored: list[int | None] = []
        for content in contents:
            block: int | None = None
            if content in self._blocks:
                self._blocks.move_to_end(content)
            elif self._free:
                block = self._free.pop()
            elif self._num_touched < self.num_blocks:
                block, self._num_touched = self._num_touched, self._num_touched + 1
            elif pinned or self._pins:
                block = self._take_unpinned(pinned)
            elif self._blocks:
                _, block = self._blocks.popitem(last=False)
            if block is not None:
                self._blocks[content] = block
            stored.append(block)
        return stored

    def _take_unpinned(self, pinned: Set[int]) -> int | None:
        """Takes what was unused for longest of what nothing copies; None: all of it is copied, or about to be."""
        for content, block in self._blocks.items():
            if block not in pinned and block not in self._pins:
                del self._blocks[content]
                return block
        return None

    def holds(self, content: bytes) -> bool:
        """Whether `content` is here, or on its way."""
        return content in self._blocks

    def pin(self, blocks: Iterable[int], *, are_written: bool = False) -> None:
        """A group of copies beside the steps reads `blocks`, or writes them: until `unpin` nothing else may do so."""
        blocks = list(blocks)
        self._pins.update(blocks)
        if are_written:
            self._arriving.update(blocks)

    def unpin(self, blocks: Iterable[int]) -> None:
        """Ends what `pin` began: the group of copies has ended."""
        for block in blocks:
            self._arriving.discard(block)
            self._pins[block] -= 1
            if not self._pins[block]:
                del self._pins[block]
                if block in self._left:
                    self._left.remove(block)
                    self._free.append(block)

    def forget(self, content: bytes, block: int) -> None:
        """`content` did not arrive in `block`."""
        if self._blocks.get(content) == block:
            del self._blocks[content]
            self._release(block)

    def forget_blocks(self, blocks: Set[int]) -> None:
        """What stands in `blocks` is not what it should be."""
        for content in [content for content, block in self._blocks.items() if block in blocks]:
            self.drop(content)

    def drop(self, content: bytes) -> None:
        """Forgets `content`, if it is here."""
        block = self._blocks.pop(content, None)
        if block is not None:
            self._release(block)

    def clear(self) -> int:
        """Forgets all content; returns how much there was."""
        count = len(self._blocks)
        for block in self._blocks.values():
            self._release(block)
        self._blocks.clear()
        return count

    def _release(self, block: int) -> None:
        if block in self._pins:
            self._left.add(block)
        else:
            self._free.append(block)

    def check_integrity(self, pins: Iterable[int] = ()) -> None:
        """Asserts that every block is free or holds one content; `pins` are the blocks of all groups of copies."""
        do_all(self.check_pieces(pins, Pieces()))

    def check_pieces(self, pins: Iterable[int], pieces: Pieces) -> Iterator[None]:
        """As `check_integrity`, piece by piece: the caller sees to it that nothing changes meanwhile."""
        assert self._num_touched <= self.num_blocks
        assert self._pins == Counter(pins), "blocks are pinned for nobody"
        assert (self._arriving | self._left) <= self._pins.keys(), "a block waits for nobody's copies"
        is_met = np.zeros(self._num_touched, np.bool_)
        num_met, blocks = 0, chain(self._free, self._left, self._blocks.values())
        while piece := list(islice(blocks, PIECE_COST // OBJECT_COST)):
            is_met[piece] = True
            num_met += len(piece)
            if pieces.is_full(OBJECT_COST * len(piece)):
                yield
        assert num_met == self._num_touched and is_met.all(), "a host block is lost or counted twice"
