"""Blocks that the scheduler has lent: a worker gives them to its own rows while it has no scheduler."""

from __future__ import annotations

import numpy as np

from worker_svc.core.requests.request_state import RequestTable
from worker_svc.core.step import I32, StepDelta


class Loan:
    """The lent blocks that are left, in the order in which they are to be taken, and those that were taken.

    They stay the scheduler's: a block that a later step names is lent no more. Not to be taken from while there is a
    scheduler.
    """

    def __init__(self, num_blocks: int) -> None:
        self._order: I32 = np.empty(0, np.int32)
        self._is_lent = np.zeros(num_blocks, np.bool_)
        self.taken: list[int] = []
        """Since the last greeting: what the scheduler knew of their content is wrong."""

    def __len__(self) -> int:
        """How many blocks are left."""
        return int(self._is_lent.sum())

    def replace(self, blocks: I32) -> None:
        """The scheduler lends these, and no others any more. Numbers of no block are not taken."""
        self._order = blocks[(blocks >= 0) & (blocks < len(self._is_lent))]
        self._is_lent[:] = False
        self._is_lent[self._order] = True

    def forget(self) -> None:
        """The worker has a scheduler, which knows of the blocks that were taken."""
        self.replace(np.empty(0, np.int32))
        self.taken = []

    def withdraw(self, delta: StepDelta) -> None:
        """The blocks that a step of the scheduler names are lent no more."""
        if not len(self._order):
            return
        self._is_lent[delta.grant_blocks] = False
        for start in (*delta.started, *delta.resumed):
            self._is_lent[start.blocks] = False
        copies = delta.copies if delta.side_copies is None else [*delta.copies, *delta.side_copies.copies]
        for copy in copies:
            self._is_lent[[copy.source] if not copy.source_is_host else []] = False
            self._is_lent[[copy.target] if not copy.target_is_host else []] = False

    def settle(self, table: RequestTable) -> None:
        """The link has ended: blocks that a slot holds are not to be given to another, whoever made that mistake."""
        for slot in np.flatnonzero(table.num_blocks).tolist():
            self._is_lent[table.blocks[slot, : table.num_blocks[slot]]] = False
        self._order = self._order[self._is_lent[self._order]]

    def take(self, count: int) -> list[int]:
        """The next `count` blocks; none when there are fewer."""
        if count > len(self._order):
            return []
        blocks: list[int] = self._order[:count].tolist()
        self._order = self._order[count:]
        self._is_lent[blocks] = False
        self.taken += blocks
        return blocks
