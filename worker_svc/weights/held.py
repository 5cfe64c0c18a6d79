"""A quantised matrix in no more memory than it has bits, from when it is read until its layer is packed."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable
from dataclasses import dataclass

import torch

from worker_svc.weights.pages import give_up
from worker_svc.weights.quantised import QuantisedMatrix

ROWS_AT_ONCE = 256
ROUNDED_AT_ONCE = 1 << 18
"""Numbers that are rounded together."""


@dataclass(frozen=True)
class HeldMatrix:
    """A `QuantisedMatrix`, which is made of it again, all or some rows."""

    codes: torch.Tensor
    """int8 `[outputs, inputs]`; of 4 bits uint8 `[outputs, inputs / 2]`, as `narrow` makes them."""
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

    def give_up(self, chunk: slice) -> None:
        """Gives the memory of these rows back, whole pages of it: nobody wants them any more."""
        give_up(self.codes[chunk])


def hold(matrix: QuantisedMatrix) -> HeldMatrix:
    """The matrix in few bits."""
    codes = _allocate_codes(matrix, matrix.shape)
    for start in range(0, len(codes), ROWS_AT_ONCE):
        chunk = slice(start, start + ROWS_AT_ONCE)
        _hold_codes(matrix.codes[chunk], codes[chunk])
    scales = _held_numbers(matrix.scales)
    offsets = None if matrix.offsets is None else _held_numbers(matrix.offsets)
    return HeldMatrix(codes, scales, offsets, matrix.bits, matrix.group_size, matrix.is_e2m1, matrix.form)


def hold_rounded(weight: torch.Tensor, round_matrix: Callable[[torch.Tensor], QuantisedMatrix]) -> HeldMatrix:
    """What `round_matrix` makes of the rows of `weight` `[outputs, inputs]`, of which there is at least one: few at a
    time, so that it takes no more memory than what it gives."""
    outputs, inputs = weight.shape
    step = max(1, ROUNDED_AT_ONCE // inputs)
    first = round_matrix(weight[:step].contiguous())
    codes = _allocate_codes(first, (outputs, inputs))
    scales, offsets = (
        None if values is None else allocate((outputs, values.shape[1]), values.dtype)
        for values in (first.scales, first.offsets)
    )
    assert scales is not None
    for start in range(0, outputs, step):
        rows = slice(start, min(outputs, start + step))
        part = round_matrix(weight[rows].contiguous()) if start else first
        _hold_codes(part.codes, codes[rows])
        scales[rows] = part.scales
        if offsets is not None and part.offsets is not None:
            offsets[rows] = part.offsets
    scales = _held_numbers(scales)
    offsets = None if offsets is None else _held_numbers(offsets)
    return HeldMatrix(codes, scales, offsets, first.bits, first.group_size, first.is_e2m1, first.form)


def allocate(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """An uninitialised tensor of pages of its own, which go back to the system when nobody has it any more."""
    num_bytes = max(1, math.prod(shape)) * dtype.itemsize
    count = math.prod(shape)
    # Private: pages of shared memory cannot be given up one by one.
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=dtype)[:count].view(shape)


def _allocate_codes(matrix: QuantisedMatrix, shape: tuple[int, int]) -> torch.Tensor:
    """Where codes of so many outputs and inputs are held, if they are like those of `matrix`."""
    outputs, inputs = shape
    if matrix.bits == 4 and inputs % 8 == 0:
        return allocate((outputs, inputs // 2), torch.uint8)
    return allocate(shape, torch.int8)


def _hold_codes(codes: torch.Tensor, to: torch.Tensor) -> None:
    to.copy_(narrow(codes) if to.dtype == torch.uint8 else codes)


def _held_numbers(values: torch.Tensor) -> torch.Tensor:
    halves = values.half()
    is_exact = torch.equal(halves.float(), values)
    held = allocate(tuple(values.shape), torch.float16 if is_exact else torch.float32)
    return held.copy_(halves if is_exact else values)


def narrow(codes: torch.Tensor) -> torch.Tensor:
    """int8 `[rows, inputs]` from -8 to 7, inputs in whole eights, as uint8 `[rows, inputs / 2]` without sign: of each
    eight the first four in the low halves of the bytes, the others in the high ones."""
    # No byte is above 15 and so none runs over into its neighbour when all four are shifted at once.
    fours = (codes + 8).view(torch.int32).view(len(codes), -1, 2)
    return (fours[..., 0] | fours[..., 1] << 4).view(torch.uint8)


def _wide(codes: torch.Tensor) -> torch.Tensor:
    if codes.dtype == torch.int8:
        return codes
    fours = codes.view(torch.int32)
    halves = torch.stack((fours & 0x0F0F0F0F, fours >> 4 & 0x0F0F0F0F), dim=-1)
    return halves.flatten(1).view(torch.int8) - 8
