"""The worker's block tables in the groups of layers that do not look back to the first position (docs/design.md, WB).

A table is a stretch of the slot's indexes, `[first, end)`. What lies ahead of what the slot's next query looks at is
not the slot's any more, and nobody says so: the scheduler's counts lag the worker's, so that what it has released is
released here, too (WB3).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from signalbox.protocol.block_groups import BlockGroup

I32 = NDArray[np.int32]


class GroupTable:
    """One group's block tables of all slots."""

    def __init__(self, group: BlockGroup, num_slots: int, max_blocks: int, block_size: int) -> None:
        self.group, self.block_size = group, block_size
        self.blocks = np.zeros((num_slots, max_blocks), np.int32)
        """[num_slots, max_blocks] by the index of the block in the request; arbitrary valid ids outside the stretch."""
        self.firsts = np.zeros(num_slots, np.int32)
        self.ends = np.zeros(num_slots, np.int32)
        self.holders = np.zeros(group.num_blocks, np.int32)
        """By block: tables that it stands in (C1)."""

    def table(self, slot: int) -> I32:
        """The blocks of `slot`; the first has the index `firsts[slot]`."""
        held: I32 = self.blocks[slot, self.firsts[slot] : self.ends[slot]]
        return held

    def start(self, slot: int, first: int, blocks: I32) -> None:
        """Gives a slot a whole table."""
        self.drop(slot)
        self.blocks[slot, first : first + len(blocks)] = blocks
        self.firsts[slot], self.ends[slot] = first, first + len(blocks)
        self.holders[blocks] += 1

    def grant(self, slot: int, block: int) -> None:
        """Gives a slot one more block."""
        self.blocks[slot, self.ends[slot]] = block
        self.ends[slot] += 1
        self.holders[block] += 1

    def leave_behind(self, slots: NDArray[np.integer], positions: I32) -> None:
        """Lets go of what queries at `positions`, one of each of `slots`, and those behind them do not look at."""
        firsts = np.minimum(self.group.first_seen(positions) // self.block_size, self.ends[slots])
        passed = firsts > self.firsts[slots]
        for slot, first in zip(slots[passed].tolist(), firsts[passed].tolist(), strict=True):
            self.holders[self.blocks[slot, self.firsts[slot] : first]] -= 1
            self.firsts[slot] = first

    def drop(self, slot: int) -> None:
        """Lets go of all."""
        self.holders[self.table(slot)] -= 1
        self.firsts[slot] = self.ends[slot] = 0

    def check_integrity(self) -> None:
        """Asserts that blocks have the holders that the tables say."""
        used = np.flatnonzero(self.ends > self.firsts).tolist()
        held = np.concatenate([self.table(slot) for slot in used]) if used else np.empty(0, np.int32)
        assert (np.bincount(held, minlength=len(self.holders)) == self.holders).all(), (
            "blocks have other holders"
        )
