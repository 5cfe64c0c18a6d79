"""Block tables as the differences to those before: between two steps of a slot there is a block or none."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

I32 = NDArray[np.int32]


class TableChanges(NamedTuple):
    """What differs in the R rows of a batch from what was known of their slots."""

    width: int
    firsts: I32
    """[R] first column that differs."""
    counts: I32
    """[R] columns from there on that are said anew; 0: none."""
    block_ids: I32
    """What stands there, row by row."""


class KnownTables:
    """The tables of all slots in one group, as the last batches had them. Rank 0 and the others keep the same."""

    def __init__(self, num_slots: int, most_blocks: int) -> None:
        self._known = np.zeros((num_slots, most_blocks), np.int32)

    def tell(self, slots: I32, tables: I32, needs: I32) -> TableChanges:
        """How `tables` `[R, W]` differ in the first `needs` `[R]` columns; from now on it is known."""
        width = tables.shape[1]
        known = self._known[slots, :width]
        differs = (known != tables) & (np.arange(width) < needs[:, None])
        is_any = differs.any(1)
        firsts = np.where(is_any, differs.argmax(1), 0)
        ends = np.where(is_any, width - differs[:, ::-1].argmax(1), 0)
        said = _between(firsts, ends, width)
        known[said] = tables[said]
        self._known[slots, :width] = known
        return TableChanges(
            width, firsts.astype(np.int32), (ends - firsts).astype(np.int32), tables[said].astype(np.int32)
        )

    def hear(self, slots: I32, changes: TableChanges) -> I32:
        """The tables `[R, W]` of which `tell` told; behind what a row needs stands what was there before."""
        width = changes.width
        known = self._known[slots, :width]
        known[_between(changes.firsts, changes.firsts + changes.counts, width)] = changes.block_ids
        self._known[slots, :width] = known
        return known


def _between(firsts: NDArray[np.integer], ends: NDArray[np.integer], width: int) -> NDArray[np.bool_]:
    columns = np.arange(width)
    return (columns >= firsts[:, None]) & (columns < ends[:, None])
