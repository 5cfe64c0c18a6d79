"""Rows of blocks as pieces of memory: joined where they lie one behind the other, and copied from cache to cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from worker_svc.transfer.block_memory import I64, BlockMemory

Rows = NDArray[np.uint8]
"""[num_blocks, bytes_per_block]"""


def runs_of(blocks: I64) -> Iterator[tuple[int, int]]:
    """`[start, end)` of each part of `blocks` whose ids follow one another."""
    breaks = (np.flatnonzero(np.diff(blocks) != 1) + 1).tolist()
    yield from zip([0, *breaks], [*breaks, len(blocks)], strict=True) if len(blocks) else ()


def views_of(memory: BlockMemory, group: int, blocks: I64) -> list[memoryview]:
    """The bytes of `blocks` where they lie: strip by strip, in each the blocks in their order."""
    runs = [(int(blocks[start]), int(blocks[start]) + end - start) for start, end in runs_of(blocks)]
    views = []
    for rows in memory.groups[group]:
        flat, size = rows.reshape(-1).data, rows.shape[1]
        views += [flat[first * size : end * size] for first, end in runs]
    return views


def copy_rows(
    targets: Sequence[Rows], target_blocks: I64, sources: Sequence[Rows], source_blocks: I64
) -> None:
    """Copies rows of each source's to the target's. One copy of each byte, outside of the interpreter's lock."""
    runs = list(runs_of(target_blocks))
    for target, source in zip(targets, sources, strict=True):
        for start, end in runs:
            first = int(target_blocks[start])
            # "clip" is the one way in which numpy writes where it is told, without a copy between; ids are checked.
            np.take(
                source, source_blocks[start:end], axis=0, out=target[first : first + end - start], mode="clip"
            )
