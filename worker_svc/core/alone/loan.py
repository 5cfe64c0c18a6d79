"""Blocks that the scheduler has lent: a worker gives them to its own rows while it has no scheduler."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from signalbox.protocol.block_groups import SPINE, BlockGroup
from worker_svc.core.requests.request_state import RequestTable
from worker_svc.core.step import I32, StepDelta

NO_BLOCKS = np.empty(0, np.int32)


class _LentBlocks:
    """What is lent of one group."""

    def __init__(self, num_blocks: int) -> None:
        self.order: I32 = NO_BLOCKS
        self.is_lent = np.zeros(num_blocks, np.bool_)
        self.taken: list[int] = []

    def replace(self, blocks: I32) -> None:
        self.order = blocks[(blocks >= 0) & (blocks < len(self.is_lent))]
        self.is_lent[:] = False
        self.is_lent[self.order] = True

    def settle(self, held: Sequence[I32]) -> None:
        for blocks in held:
            self.is_lent[blocks] = False
        self.order = self.order[self.is_lent[self.order]]

    def take(self, count: int) -> list[int]:
        blocks: list[int] = self.order[:count].tolist()
        self.order = self.order[count:]
        self.is_lent[blocks] = False
        self.taken += blocks
        return blocks


class Loan:
    """The lent blocks that are left, in the order in which they are to be taken, and those that were taken.

    They stay the scheduler's: a block that a later step names is lent no more. Not to be taken from while there is a
    scheduler.
    """

    def __init__(self, num_blocks: int, groups: Sequence[BlockGroup] = ()) -> None:
        self._of = [_LentBlocks(num_blocks), *(_LentBlocks(group.num_blocks) for group in groups)]

    def __len__(self) -> int:
        """How many blocks are left, of the group that has fewest."""
        return min(int(lent.is_lent.sum()) for lent in self._of)

    @property
    def taken(self) -> list[list[int]]:
        """Blocks of each group taken since the last greeting: what the scheduler knew of their content is wrong."""
        return [lent.taken for lent in self._of]

    def replace(self, *blocks: I32) -> None:
        """The scheduler lends these of each group, and no others any more. Numbers of no block are not taken."""
        for number, lent in enumerate(self._of):
            lent.replace(blocks[number] if number < len(blocks) else NO_BLOCKS)

    def lends(self, blocks: Sequence[int], group: int = SPINE) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which of `blocks` are lent, and not taken yet."""
        return self._of[group].is_lent[list(blocks)]

    def forget(self) -> None:
        """The worker has a scheduler, which knows of the blocks that were taken."""
        self.replace()
        for lent in self._of:
            lent.taken = []

    def withdraw(self, delta: StepDelta) -> None:
        """The blocks that a step of the scheduler names are lent no more."""
        for group, lent in enumerate(self._of):
            if not len(lent.order):
                continue
            lent.is_lent[delta.grants_of(group)[1]] = False
            for start in (*delta.started, *delta.resumed):
                lent.is_lent[start.blocks_of(group)] = False
            for coming in delta.given_tables if delta.orders else ():
                lent.is_lent[list(coming.blocks_of(group))] = False
            if delta.orders:
                lent.is_lent[delta.brought_to(group)] = False
        for copy in delta.all_copies:
            if copy.group < len(self._of):  # else they are checkpoints, which nobody is lent
                is_lent = self._of[copy.group].is_lent
                is_lent[[copy.source] if not copy.source_is_host else []] = False
                is_lent[[copy.target] if not copy.target_is_host else []] = False

    def settle(self, table: RequestTable) -> None:
        """The link has ended: blocks that a slot holds are not to be given to another, whoever made that mistake."""
        table.leave_behind()
        slots = np.flatnonzero(table.num_blocks).tolist()
        spine, *others = self._of
        spine.settle([table.blocks[slot, : table.num_blocks[slot]] for slot in slots])
        for lent, group in zip(others, table.groups, strict=True):
            lent.settle([group.table(slot) for slot in slots])

    def has(self, counts: Sequence[int]) -> bool:
        """Whether `take` would give so many of each group."""
        return all(count <= len(lent.order) for count, lent in zip(counts, self._of, strict=True))

    def take(self, counts: Sequence[int]) -> list[list[int]]:
        """The next so many blocks of each group; none of any when there are fewer of one."""
        if not self.has(counts):
            return [[] for _ in self._of]
        return [lent.take(max(count, 0)) for count, lent in zip(counts, self._of, strict=True)]
