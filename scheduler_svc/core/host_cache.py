"""The host tier: content of KV blocks that the device evicted, second level of the prefix cache.

It is also how a preempted request is swapped: its blocks stay findable on the device until they are given away, are
copied out then, and are copied back when it is resumed; only what was never sealed is computed again. There is no other
bookkeeping of a swap, so nothing can be forgotten or leak: content that the host tier had to drop is recomputed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Set

HOST_BIT = 1 << 31
"""Marks a host block's id in a list of copies."""


class HostCache:
    """Content hashes of `num_blocks` host blocks, in the order of last use."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._blocks: OrderedDict[bytes, int] = OrderedDict()
        self._free = list(range(num_blocks - 1, -1, -1))

    def __len__(self) -> int:
        return len(self._blocks)

    def lookup(self, hashes: list[bytes]) -> list[int]:
        """Host blocks of the longest known prefix of `hashes`; they count as used."""
        found: list[int] = []
        for content in hashes:
            block = self._blocks.get(content)
            if block is None:
                break
            self._blocks.move_to_end(content)
            found.append(block)
        return found

    def store(self, content: bytes, pinned: Set[int]) -> int | None:
        """A host block for `content`, taken from what was unused for longest; None when the content is here already or
        only `pinned` blocks (about to be read) could be taken."""
        if content in self._blocks:
            self._blocks.move_to_end(content)
            return None
        if self._free:
            block = self._free.pop()
        else:
            oldest = next((key for key, block in self._blocks.items() if block not in pinned), None)
            if oldest is None:
                return None
            block = self._blocks.pop(oldest)
        self._blocks[content] = block
        return block

    def clear(self) -> int:
        """Forgets all content; returns how much there was."""
        count = len(self._blocks)
        self._free += self._blocks.values()
        self._blocks.clear()
        return count

    def check_integrity(self) -> None:
        """Asserts that every block is free or holds one content."""
        assert sorted([*self._free, *self._blocks.values()]) == list(range(self.num_blocks))
