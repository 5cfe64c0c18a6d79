"""Rows of several matrices, in the order in which they lie in the tiles of a packed one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray

from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.cpu.native.kernels import TILE

WORD_BYTES = 4


class TiledRows:
    """The rows of matrices `[outputs, inputs]` of one dtype and in whole words of 4 bytes, one matrix behind the other,
    filled up to whole tiles of 32."""

    def __init__(
        self, parts: Sequence[torch.Tensor], order: torch.Tensor | None = None, padding: int = 0
    ) -> None:
        """`order`: int64 `[outputs]`, which row comes where. `padding`: the number that rows are full of which fill up
        the last tile."""
        # A row has to lie in one piece.
        self._parts = [part if part.stride(1) == 1 else part.contiguous() for part in parts]
        self._order, self._padding = order, padding
        self._words = parts[0].shape[1] * parts[0].element_size() // WORD_BYTES
        self._addresses = self._find_addresses()

    def pack(self, tiles: slice, to: torch.Tensor, *, head_bytes: int = 0, flips: int = 0) -> None:
        """Writes some tiles to `to`, contiguous uint8 `[tiles, groups, head_bytes + bytes of a group's words]`: of 32
        rows the first word of each, then the second one of each, and so on. Heads are left as they are; `flips` (int32)
        are the bits that change in each word."""
        rows = slice(tiles.start * TILE, tiles.stop * TILE)
        group_words = (to.shape[2] - head_bytes) // (TILE * WORD_BYTES)
        kernels = native_kernels()
        if kernels is None:
            words = self._rows(rows).view(torch.int32).view(len(to), TILE, to.shape[1], group_words) ^ flips
            to[..., head_bytes:] = (
                words.permute(0, 2, 3, 1).contiguous().view(torch.uint8).view(*to.shape[:2], -1)
            )
            return
        kernels.pack_rows(
            self._addresses[rows],
            to,
            words=self._words,
            group_words=group_words,
            head_bytes=head_bytes,
            flips=flips,
        )

    def _rows(self, chunk: slice) -> torch.Tensor:
        rows = torch.cat(self._parts) if len(self._parts) > 1 else self._parts[0]
        rows = rows[chunk] if self._order is None else rows[self._order[chunk]]
        missing = chunk.stop - chunk.start - len(rows)
        return F.pad(rows, (0, 0, 0, missing), value=self._padding).contiguous()

    def _find_addresses(self) -> NDArray[np.int64]:
        """Where each row begins, `[32 * tiles]`."""
        starts = np.concatenate([_starts(part) for part in self._parts])
        if self._order is not None:
            starts = starts[self._order.numpy()]
        first = self._parts[0]
        self._filling = first.new_full((first.shape[1],), self._padding)
        missing = np.full(-len(starts) % TILE, self._filling.data_ptr(), np.int64)
        return np.concatenate((starts, missing))


def _starts(part: torch.Tensor) -> NDArray[np.int64]:
    return part.data_ptr() + np.arange(len(part), dtype=np.int64) * (part.stride(0) * part.element_size())
