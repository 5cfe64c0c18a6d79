"""A quantised matrix in no more memory than it has bits, from when it is read until its layer is packed."""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass

import torch

from worker_svc.weights.quantised import QuantisedMatrix

ROWS_AT_ONCE = 256


@dataclass(frozen=True)
class HeldMatrix:
    """A `QuantisedMatrix`, which is made of it again, all or some rows."""

    codes: torch.Tensor
    """int8 `[outputs, inputs]`; of 4 bits uint8 `[outputs, inputs / 2]`, the first half of a row in the low halves."""
    scales: torch.Tensor
    """`[outputs, groups]`, float16 where all of them are numbers of it, else float32."""
    offsets: torch.Tensor | None
    """As the scales."""
    bits: int
    group_size: int
    is_e2m1: bool
    form: str
    """As the matrix tells it."""

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs, inputs."""
        outputs, width = self.codes.shape
        return outputs, width * (2 if self.codes.dtype == torch.uint8 else 1)

    def rows(self, chunk: slice = slice(None)) -> QuantisedMatrix:
        """The matrix of these rows, with the very numbers that it had."""
        return QuantisedMatrix(
            codes=_wide(self.codes[chunk]),
            scales=self.scales[chunk].float(),
            offsets=None if self.offsets is None else self.offsets[chunk].float(),
            bits=self.bits,
            group_size=self.group_size,
            is_e2m1=self.is_e2m1,
        )


def hold(matrix: QuantisedMatrix) -> HeldMatrix:
    """The matrix in few bits."""
    outputs, inputs = matrix.shape
    is_narrow = matrix.bits == 4 and inputs % 2 == 0
    codes = allocate(
        (outputs, inputs // 2 if is_narrow else inputs), torch.uint8 if is_narrow else torch.int8
    )
    for start in range(0, outputs, ROWS_AT_ONCE):
        chunk = slice(start, start + ROWS_AT_ONCE)
        codes[chunk] = _narrow(matrix.codes[chunk]) if is_narrow else matrix.codes[chunk]
    scales = _held_numbers(matrix.scales)
    offsets = None if matrix.offsets is None else _held_numbers(matrix.offsets)
    return HeldMatrix(codes, scales, offsets, matrix.bits, matrix.group_size, matrix.is_e2m1, matrix.form)


def allocate(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """An uninitialised tensor of pages of its own, which go back to the system when nobody has it any more."""
    num_bytes = max(1, math.prod(shape)) * dtype.itemsize
    count = math.prod(shape)
    return torch.frombuffer(mmap.mmap(-1, num_bytes), dtype=dtype)[:count].view(shape)


def _held_numbers(values: torch.Tensor) -> torch.Tensor:
    halves = values.half()
    is_exact = torch.equal(halves.float(), values)
    held = allocate(tuple(values.shape), torch.float16 if is_exact else torch.float32)
    return held.copy_(halves if is_exact else values)


def _narrow(codes: torch.Tensor) -> torch.Tensor:
    unsigned = (codes + 8).view(torch.uint8)
    low, high = unsigned.chunk(2, dim=1)
    return low | high << 4


def _wide(codes: torch.Tensor) -> torch.Tensor:
    if codes.dtype == torch.int8:
        return codes
    return torch.cat((codes & 15, codes >> 4), dim=1).view(torch.int8) - 8
