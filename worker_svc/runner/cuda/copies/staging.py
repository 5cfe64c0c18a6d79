"""Pinned memory by which rows of a device leave the process and enter it: one buffer, one caller at a time (TR15)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import torch

from worker_svc.runner.cuda.copies.copier import BlockCopier
from worker_svc.runner.cuda.copies.levels import I64
from worker_svc.runner.cuda.copies.order import Mark
from worker_svc.runner.cuda.copies.pinned import host_empty
from worker_svc.runner.cuda.copies.rows import DEVICE, STAGE, U8, PlacedRows, copies_between

STAGE_BYTES = 8 << 20
"""What is pinned, if a block of no group, and no recurrent state, is larger."""
ALIGNMENT = 64


class Stage:
    """The buffer, and the tensors that lie in it. Those of different groups are in the same memory."""

    def __init__(self, groups: Sequence[Sequence[torch.Tensor]], *, is_pinned: bool) -> None:
        """groups: tensors `[rows, ...]` of which rows are staged, as many as have room, and one at least."""
        counts = [_rows_at_once(tensors) for tensors in groups]
        size = max(
            (sum(_sizes(tensors, count)) for tensors, count in zip(groups, counts, strict=True)), default=0
        )
        self._memory = host_empty((size,), torch.uint8, is_pinned=is_pinned)
        self.groups = [self._parts(tensors, count) for tensors, count in zip(groups, counts, strict=True)]
        """[groups][tensors] of `[rows, ...]`."""

    @property
    def num_bytes(self) -> int:
        """What is pinned."""
        return len(self._memory)

    def _parts(self, tensors: Sequence[torch.Tensor], count: int) -> list[torch.Tensor]:
        parts, start = [], 0
        for tensor, size in zip(tensors, _sizes(tensors, count), strict=True):
            shape = (count, *tensor.shape[1:])
            whole = self._memory[start : start + torch.Size(shape).numel() * tensor.itemsize]
            parts.append(whole.view(tensor.dtype).view(shape))
            start += size
        return parts


class StagedCopies:
    """Reads and writes rows beside the steps. Any thread may ask."""

    def __init__(self, copier: BlockCopier) -> None:
        self._copier, self._lock = copier, threading.Lock()

    def read(
        self, rows: PlacedRows, ids: I64, into: Sequence[U8], after: Sequence[Mark] | None = None
    ) -> None:
        """Reads rows of the device. into: by tensor, `[N, row_bytes]`. after: what it waits for; None: for what no
        step's results tell. RuntimeError if the device fails."""

        def take(part: slice, staged: Sequence[U8]) -> None:
            for to, of in zip(into, staged, strict=True):
                to[part] = of

        def copy(part: I64) -> I64:
            return copies_between(DEVICE, part, STAGE, np.arange(len(part)))

        self._in_parts(rows, ids, copy, after, then=take)

    def write(
        self, rows: PlacedRows, ids: I64, content: Sequence[U8], after: Sequence[Mark] | None = None
    ) -> None:
        """Writes what `read` gave. Returns when it is on the device; otherwise as `read`."""

        def give(part: slice, staged: Sequence[U8]) -> None:
            for to, of in zip(staged, content, strict=True):
                to[:] = of[part]

        def copy(part: I64) -> I64:
            return copies_between(STAGE, np.arange(len(part)), DEVICE, part)

        self._in_parts(rows, ids, copy, after, first=give)

    def _in_parts(
        self,
        rows: PlacedRows,
        ids: I64,
        copy: Callable[[I64], I64],
        after: Sequence[Mark] | None,
        first: Callable[[slice, Sequence[U8]], None] | None = None,
        then: Callable[[slice, Sequence[U8]], None] | None = None,
    ) -> None:
        """As many rows at a time as are staged. The buffer is nobody else's until the device has done with it, and
        what it brought was read (TR15)."""
        if not rows.row_bytes:
            return
        for start in range(0, len(ids), rows.num_staged):
            part = slice(start, min(start + rows.num_staged, len(ids)))
            columns = copy(ids[part])
            with self._lock:
                staged = [each[: part.stop - start] for each in rows.stage_bytes]
                if first is not None:
                    first(part, staged)
                self._copier.run_aside(
                    lambda columns=columns: self._copier.move(rows, columns),  # type: ignore[misc]
                    self._copier.unsettled if after is None else after,
                )
                if then is not None:
                    then(part, staged)


def _rows_at_once(tensors: Sequence[torch.Tensor]) -> int:
    num_bytes = sum(tensor.shape[1:].numel() * tensor.itemsize for tensor in tensors)
    most = min((len(tensor) for tensor in tensors), default=0)
    return max(1, min(most, STAGE_BYTES // max(1, num_bytes)))


def _sizes(tensors: Sequence[torch.Tensor], count: int) -> list[int]:
    """Bytes that so many rows of each tensor take."""
    sizes = [count * tensor.shape[1:].numel() * tensor.itemsize for tensor in tensors]
    return [-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]
