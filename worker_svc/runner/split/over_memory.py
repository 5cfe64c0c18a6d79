"""Collectives of the ranks of one host, through memory that all of them have mapped: no port, no copy in a kernel."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.runner.cpu.native.structs import ExchangeCall
from worker_svc.runner.split.communicator import Communicator

HEAD_BYTES = 1 << 16
"""HEAD of exchange.h: words of ranks, a cache line each, in whole pages of any size."""
PART_BYTES = 4 << 20
"""What a rank can give at a time; more goes in pieces."""
SUMMED = {torch.float32: 1, torch.bfloat16: 2}


def make_exchange_memory(num_ranks: int) -> int:
    """A descriptor of memory for so many ranks, all zeros and taken from the system as it is touched. OSError where the
    system has none such."""
    if not hasattr(os, "memfd_create"):
        raise OSError("this system has no memory that processes can share by a descriptor")
    fd = os.memfd_create("ranks", os.MFD_CLOEXEC)
    os.ftruncate(fd, HEAD_BYTES + 2 * num_ranks * PART_BYTES)
    return fd


class MemoryCommunicator(Communicator):
    """Each rank writes what it has, and reads what the others have once these say that it is there: one wait for each
    collective, and the sum in the order of ranks."""

    def __init__(self, rank: int, size: int, fd: int, kernels: Kernels) -> None:
        super().__init__(rank, size, size)
        self._memory = mmap.mmap(fd, HEAD_BYTES + 2 * size * PART_BYTES)
        self._bytes = np.frombuffer(self._memory, np.uint8)
        self._ended = self._bytes[:4].view(np.uint32)
        self._exchange = kernels.exchange
        self._call = ExchangeCall(
            memory=self._bytes.ctypes.data, part_bytes=PART_BYTES, rank=rank, size=size, number=0
        )

    def end(self) -> None:
        """Lets whoever waits for others wait no longer."""
        self._ended[0] = 1

    @property
    def progress(self) -> int:
        """Rises with each exchange, also within a kernel's own."""
        return int(self._call.number)

    def _sum(self, values: torch.Tensor) -> None:
        kind, flat = SUMMED[values.dtype], values.view(-1)
        at_once = PART_BYTES // values.itemsize
        for first in range(0, len(flat), at_once):
            piece = flat[first : first + at_once]
            self._give(piece.data_ptr(), len(piece), piece.itemsize, kind)

    def _join(self, part: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor | None:
        num_rows, itemsize = len(part), part.itemsize
        joined = None if self.rank else part.new_empty(num_rows, sum(sizes))
        ends = np.cumsum(sizes).tolist()
        at_once = max(1, PART_BYTES // (max(sizes) * itemsize))
        for first in range(0, num_rows, at_once):
            piece = part[first : first + at_once]
            self._give(piece.data_ptr(), piece.numel(), itemsize, 0)
            if joined is not None:
                for rank, (size, end) in enumerate(zip(sizes, ends, strict=True)):
                    part_of_rank = self._part(rank, len(piece) * size * itemsize)
                    joined[first : first + at_once, end - size : end] = part_of_rank.view(part.dtype).view(
                        -1, size
                    )
        return joined

    def _least(self, number: int) -> int:
        mine = ctypes.c_int64(number)
        self._give(ctypes.addressof(mine), 1, 8, 0)
        return min(int(self._part(rank, 8).view(torch.int64)) for rank in range(self.size))

    @contextmanager
    def summing(self, num_sums: int, num_bytes: int) -> Iterator[ExchangeCall]:
        """For a kernel that makes so many sums by itself, in the pieces in which `sum` would. RuntimeError if the group
        ends meanwhile."""
        call = self._call
        call.has_ended, before = 0, call.seconds
        yield call
        self.num_calls += num_sums
        self.num_bytes += num_bytes
        self.seconds += call.seconds - before
        self._check()

    def _give(self, address: int, count: int, item_bytes: int, kind: int) -> None:
        call = self._call
        call.values, call.count, call.item_bytes, call.kind = address, count, item_bytes, kind
        self._exchange(call)
        self._check()

    def _check(self) -> None:
        if self._call.has_ended:
            raise RuntimeError("the group of ranks has ended")

    def _part(self, rank: int, num_bytes: int) -> torch.Tensor:
        """What a rank gave to the last exchange; there until the next but one."""
        start = HEAD_BYTES + (2 * rank + self._call.number % 2) * PART_BYTES
        return torch.from_numpy(self._bytes[start : start + num_bytes])
