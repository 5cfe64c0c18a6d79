"""Which copies of a list can be made at once, though they are meant one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]


def levels_of(columns: I64) -> I64:
    """[N] levels of copies `[N, 4]`: place and row that are read, place and row that are written. Made level by level,
    all of a level at once and in any order, they leave what they leave when they are made one by one."""
    behind_writes: dict[tuple[int, int], int] = {}
    behind_reads: dict[tuple[int, int], int] = {}
    levels = np.empty(len(columns), np.int64)
    for number, (of, source, to, target) in enumerate(columns.tolist()):
        read, written = (of, source), (to, target)
        level = max(behind_writes.get(read, 0), behind_writes.get(written, 0), behind_reads.get(written, 0))
        levels[number] = level
        behind_writes[written] = level + 1
        behind_reads[read] = max(behind_reads.get(read, 0), level + 1)
    return levels


def by_level(columns: I64) -> Iterator[I64]:
    """The copies of each level, in the order of the levels."""
    levels = levels_of(columns)
    for level in range(int(levels.max(initial=-1)) + 1):
        yield columns[levels == level]
