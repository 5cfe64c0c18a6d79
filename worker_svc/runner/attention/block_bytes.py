"""The bytes of whole blocks, in all layers of their group: what a disk keeps of them (docs/design.md, DT)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from worker_svc.runner.attention.kv_cache import KVCache
from worker_svc.runner.cuda.side_stream import beside

U8 = NDArray[np.uint8]
I32 = NDArray[np.int32]


class BlockBytes:
    """A `BlockMemory` over a cache: a block is its rows of all stored tensors, one layer behind the other."""

    def __init__(self, cache: KVCache, num_groups: int, device: torch.device) -> None:
        self._device = device
        self._stored = [cache.stored_in(group) for group in range(num_groups)]

    def record_bytes(self) -> list[int]:
        """Bytes of a block of each group."""
        return [sum(_row_bytes(each) for each in stored) for stored in self._stored]

    def reads_aside(self, group: int, blocks: I32) -> Callable[[], U8]:
        """Returns what reads blocks; see `BlockMemory`."""
        content = np.empty((len(blocks), self.record_bytes()[group]), np.uint8)
        run = beside(self._device, lambda: self._read(group, blocks, content))

        def read() -> U8:
            run()
            return content

        return read

    def writes_aside(self, group: int, blocks: I32) -> Callable[[U8], None]:
        """Returns what writes blocks; see `BlockMemory`."""
        content: list[U8] = []
        run = beside(self._device, lambda: self._write(group, blocks, content[0]))

        def write(rows: U8) -> None:
            content.append(rows)
            run()

        return write

    @torch.inference_mode()
    def _read(self, group: int, blocks: I32, content: U8) -> None:
        index = torch.from_numpy(blocks).to(self._device, torch.int64)
        target, at = torch.from_numpy(content), 0
        for stored in self._stored[group]:
            rows = stored.index_select(0, index).reshape(len(blocks), -1).view(torch.uint8)
            target[:, at : at + rows.shape[1]] = rows.to("cpu")
            at += rows.shape[1]

    @torch.inference_mode()
    def _write(self, group: int, blocks: I32, content: U8) -> None:
        index = torch.from_numpy(blocks).to(self._device, torch.int64)
        source, at = torch.from_numpy(content), 0
        for stored in self._stored[group]:
            size = _row_bytes(stored)
            rows = source[:, at : at + size].contiguous().view(stored.dtype)
            stored.index_copy_(0, index, rows.to(self._device).reshape(len(blocks), *stored.shape[1:]))
            at += size


def _row_bytes(stored: torch.Tensor) -> int:
    return stored[0].numel() * stored.itemsize
