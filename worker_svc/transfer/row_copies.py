"""Rows of blocks, copied from one cache to another of the same layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
Rows = NDArray[np.uint8]
"""[num_blocks, bytes_per_block], contiguous"""
CopyBlocks = Callable[[I64, I64], None]
"""A callable that copies to the blocks named first what those named second hold, one by one. All of them are there."""
CopierOf = Callable[[Sequence[Rows], Sequence[Rows]], CopyBlocks]
"""A callable that returns what copies blocks to the first strips from the others, which it keeps in memory."""


def numpy_copier(targets: Sequence[Rows], sources: Sequence[Rows]) -> CopyBlocks:
    """Copies what lies together at both ends at once: a call of numpy for each such part of each strip."""
    strips = list(zip(targets, sources, strict=True))

    def copy(target_blocks: I64, source_blocks: I64) -> None:
        parts = [
            (int(target_blocks[start]), int(source_blocks[start]), end - start)
            for start, end in runs_of(target_blocks, source_blocks)
        ]
        for target, source in strips:
            for to, start, count in parts:
                target[to : to + count] = source[start : start + count]

    return copy


def runs_of(*blocks: I64) -> Iterator[tuple[int, int]]:
    """`[start, end)` of each part in which the ids follow one another, in all of `blocks`, which are equally long."""
    count = len(blocks[0])
    steps = np.ones(max(count - 1, 0), bool)
    for ids in blocks:
        steps &= np.diff(ids) == 1
    breaks = (np.flatnonzero(~steps) + 1).tolist()
    yield from zip([0, *breaks], [*breaks, count], strict=True) if count else ()
