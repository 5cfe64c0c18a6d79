"""Which positions of the KV blocks a draft model has computed too."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from worker_svc.core.batch import BlockCopy

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


class DraftCoverage:
    """One number per block: so many of its first positions hold the draft model's KV of the block's tokens.

    Kept by block and not by request, it holds for whoever a block is shared with, and needs no word of preemptions and
    rejected drafts: only known tokens are ever counted, and these do not change while the block keeps its content.
    """

    def __init__(self, num_blocks: int, num_host_blocks: int, block_size: int) -> None:
        self._block_size = block_size
        self._device = np.zeros(num_blocks, np.int32)
        self._host = np.zeros(num_host_blocks, np.int32)

    def copy(self, copy: BlockCopy) -> None:
        """A block of the draft model's layers has been copied."""
        sources = self._host if copy.source_is_host else self._device
        targets = self._host if copy.target_is_host else self._device
        targets[copy.target] = sources[copy.source]

    def renew(self, blocks: list[int]) -> None:
        """Forgets what these blocks had: they get new content."""
        self._device[blocks] = 0

    def num_covered(self, tables: I32) -> I64:
        """[R] positions from the first on that are covered without a gap; `tables` `[R, W]` are block ids, of which
        any behind a request's last may stand for anything."""
        covered = self._device[tables]
        padded = np.pad(covered, ((0, 0), (0, 1)))
        first_open = (padded < self._block_size).argmax(axis=1)
        rows = np.arange(len(tables))
        covered_tokens: I64 = first_open * self._block_size + padded[rows, first_open].astype(np.int64)
        return covered_tokens

    def cover(self, table: I32, start: int, end: int) -> None:
        """The draft model has computed positions `[start, end)` of the known tokens of the request with this block
        table; all before `start` were covered."""
        size = self._block_size
        for index in range(start // size, -(-end // size)):
            self._device[table[index]] = max(int(self._device[table[index]]), min(end - index * size, size))
