"""The decode rows of one lane: the steps of a worker are the turns of its lanes, one after the other (LA1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.state.steps.step import Slots


class LaneRows:
    """A column over `num_slots` slots, and what is kept of it."""

    def __init__(self, num_slots: int) -> None:
        self.advance = np.zeros(num_slots, np.int32)
        """Most new tokens per slot in a step of the lane; not to be written by others."""
        self._is_shared = False
        self._slots: Slots | None = None
        self.num_tokens = 0
        """Sum of `advance`: what the rows take of the budget."""
        self.has_drafts = False
        """A row had some, now or before."""

    @property
    def slots(self) -> Slots:
        """Slots that are its rows, ascending."""
        if self._slots is None:
            self._slots = np.flatnonzero(self.advance)
        return self._slots

    def share(self) -> NDArray[np.int32]:
        """The column for a record: it is copied before it changes again."""
        self._is_shared = True
        return self.advance

    def set(self, slot: int, advance: int) -> int:
        """Sets what `slot` may advance by in the steps of the lane from now on; 0: it is no row of it. Returns the
        change of `num_tokens`."""
        old = int(self.advance[slot])
        if advance == old:
            return 0
        if self._is_shared:
            self.advance = self.advance.copy()
            self._is_shared = False
        self.advance[slot] = advance
        self._slots = None
        self.num_tokens += advance - old
        self.has_drafts = self.has_drafts or advance > 1
        return advance - old
