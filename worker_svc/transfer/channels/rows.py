"""Rows of blocks as pieces of memory, joined where they lie one behind the other."""

from __future__ import annotations

from worker_svc.transfer.block_memory import BlockMemory
from worker_svc.transfer.row_copies import I64, runs_of


def views_of(memory: BlockMemory, group: int, blocks: I64) -> list[memoryview]:
    """The bytes of `blocks` where they lie: strip by strip, in each the blocks in their order."""
    runs = [(int(blocks[start]), int(blocks[start]) + end - start) for start, end in runs_of(blocks)]
    views = []
    for rows in memory.groups[group]:
        flat, size = rows.reshape(-1).data, rows.shape[1]
        views += [flat[first * size : end * size] for first, end in runs]
    return views
