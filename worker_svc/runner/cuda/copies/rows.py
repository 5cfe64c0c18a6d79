"""Rows of one group of blocks in all places where it has some, and two ways to copy them: by a kernel, and by torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from worker_svc.runner.cuda.copies.levels import I64
from worker_svc.runner.cuda.transfers import upload

U8 = NDArray[np.uint8]
DEVICE, HOST, STAGE = range(3)
"""Places: the cache, the host tier, and the pinned rows by which blocks leave and enter the process."""
WORDS = (8, 4, 2, 1)


class PlacedRows:
    """Tensors `[rows, ...]`, one for each that the group's layers keep, in each place. Row r of all of them is block
    r."""

    def __init__(
        self,
        own: Sequence[torch.Tensor],
        host: Sequence[torch.Tensor] = (),
        stage: Sequence[torch.Tensor] = (),
    ) -> None:
        """own: on the device. host, stage: on the host, and pinned where that is a GPU; none: there is no such
        place."""
        self.tensors = tuple(map(tuple, (own, host, stage)))
        for place in self.tensors:
            assert len(place) in (0, len(own)), "a place has all of the group's tensors, or none"
            assert all(tensor.is_contiguous() for tensor in place)
            assert all(
                (tensor.shape[1:], tensor.dtype) == (first.shape[1:], first.dtype)
                for tensor, first in zip(place, own, strict=False)
            ), "a row is the same in all places"
        self.row_bytes = [_row_bytes(tensor) for tensor in own]
        """[tensors] bytes of a row."""
        self.stage_bytes = [_as_bytes(tensor) for tensor in stage]
        """[tensors] of `[rows, row_bytes]`: what the host reads and writes of STAGE."""
        self.num_staged = min((len(tensor) for tensor in stage), default=0)
        addresses = [[tensor.data_ptr() for tensor in place] or [0] * len(own) for place in self.tensors]
        device = own[0].device if own else torch.device("cpu")
        self.word = _word_of([*self.row_bytes, *(address for place in addresses for address in place)])
        """Bytes that are copied at once: all rows are whole numbers of them."""
        self.addresses = torch.tensor(addresses, dtype=torch.int64, device=device)
        """[places, tensors] of the first row; 0: it has none."""
        self.row_words = torch.tensor([size // self.word for size in self.row_bytes], device=device).long()
        """[tensors] words of a row."""

    @property
    def num_bytes(self) -> int:
        """Bytes of a block in all tensors."""
        return sum(self.row_bytes)


Move = Callable[[PlacedRows, I64], None]
"""Copies rows in all tensors at once, `[N, 4]`: place and row that are read, place and row that are written. None is
written that another copy reads or writes."""


def move_by_kernel(rows: PlacedRows, columns: I64) -> None:
    """A `Move` in one launch of Triton's kernel on the current stream."""
    from worker_svc.runner.triton.copy import copy_rows  # noqa: PLC0415 (Triton is optional)

    copies = upload([columns], rows.addresses.device)[0]
    copy_rows(rows.addresses, rows.row_words, rows.word, copies)


def move_by_torch(rows: PlacedRows, columns: I64) -> None:
    """A `Move` of some operators per tensor, where Triton cannot run."""
    for of, to in np.unique(columns[:, [0, 2]], axis=0).tolist():
        some = columns[(columns[:, 0] == of) & (columns[:, 2] == to)]
        sources, targets = (torch.from_numpy(some[:, place].copy()) for place in (1, 3))
        for source, target in zip(rows.tensors[of], rows.tensors[to], strict=True):
            read = source.index_select(0, sources.to(source.device))
            target.index_copy_(0, targets.to(target.device), read.to(target.device))


def copies_between(of: int, sources: I64, to: int, targets: I64) -> I64:
    """The columns of copies from one place to another."""
    count = len(sources)
    return np.stack([np.full(count, of), sources, np.full(count, to), targets], axis=1).astype(np.int64)


def _row_bytes(tensor: torch.Tensor) -> int:
    return tensor.shape[1:].numel() * tensor.itemsize


def _as_bytes(tensor: torch.Tensor) -> U8:
    return tensor.view(len(tensor), -1).view(torch.uint8).numpy()


def _word_of(sizes: Sequence[int]) -> int:
    return next(word for word in WORDS if all(size % word == 0 for size in sizes))
