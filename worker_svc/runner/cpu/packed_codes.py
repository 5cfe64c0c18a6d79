"""Weights kept as whole numbers, in the order in which the kernel reads them."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812

from worker_svc.runner.cpu.huge_pages import allocate
from worker_svc.runner.cpu.native.kernels import TILE
from worker_svc.runner.cpu.native.structs import PackedCall
from worker_svc.runner.cpu.packed_linear import PackingError
from worker_svc.runner.cpu.tiled_rows import TiledRows
from worker_svc.weights.heap import heap_trim
from worker_svc.weights.held import hold
from worker_svc.weights.held_rows import HeldRows
from worker_svc.weights.quantised import QuantisedMatrix

PIECE, HALF_PIECE = 32, 16
"""Inputs whose products the kernel adds up exactly: those of 32 share a scale in a row."""
FLIPS = {8: -0x7F7F7F80, 4: 0}
"""Bits that change in four bytes of codes: those of 8 bits are stored without sign. Of 4 bits they are held so."""
NO_CODES = {8: 0, 4: 0x88}
"""Bytes whose codes are zeros."""
CODES_AT_ONCE = 1 << 23
"""Codes that are packed together, about, before the memory where they were held is given up."""


class PackedCodes:
    """A matrix and a bias `[outputs]` float32.

    In tiles of 32 columns, and in these by groups of inputs: 32 scales, 32 offsets if there are any, and then
    the codes without sign, for each 4 inputs (8 of 4 bits: 4 in the low halves of the bytes, 4 in the high ones) those
    of one column behind another.
    """

    def __init__(
        self,
        matrix: QuantisedMatrix | HeldRows,
        bias: torch.Tensor | None = None,
        memory: torch.Tensor | None = None,
    ) -> None:
        """`memory`: where it is to lie, if that has the shape that is needed; None: in memory of its own. Held rows are
        used up: some are gone once they are packed. PackingError, of a matrix as it was, if it does not fit."""
        outputs, inputs = matrix.shape
        check_fits(matrix)
        rows = matrix if isinstance(matrix, HeldRows) else HeldRows([hold(matrix)])
        number = number_type(rows)
        shape = packed_shape(rows, number)
        if memory is None or memory.shape != shape:
            memory = allocate(shape, torch.uint8)
        self.packed = memory
        _pack(rows, number, self.packed)
        heap_trim.add(self.packed.nbytes)
        self.bias = None if bias is None else F.pad(bias.float(), (0, len(memory) * TILE - outputs))
        self.call = PackedCall(
            self.packed.data_ptr(),
            None if self.bias is None else self.bias.data_ptr(),
            inputs,
            outputs,
            matrix.group_size,
            matrix.bits,
            number.itemsize,
            matrix.offsets is not None,
            matrix.is_e2m1,
        )

    def matrix(self) -> QuantisedMatrix:
        """What was packed."""
        call, at = self.call, 0
        number = torch.float16 if call.scale_bytes == 2 else torch.float32
        numbers = []
        for _ in range(2 if call.has_offsets else 1):
            stored = self.packed[..., at : at + TILE * number.itemsize].contiguous().view(number)
            numbers.append(stored.transpose(1, 2).flatten(0, 1)[: call.outputs].float())
            at += TILE * number.itemsize
        codes = _unarranged(self.packed[..., at:], call.group, call.bits)[: call.outputs]
        offsets = numbers[1] if call.has_offsets else None
        return QuantisedMatrix(codes, numbers[0], offsets, call.bits, call.group, bool(call.is_e2m1))


def packed_shape(matrix: QuantisedMatrix | HeldRows, number: torch.dtype) -> tuple[int, int, int]:
    """Tiles, groups of inputs, and the bytes that one has in a tile."""
    outputs, inputs = matrix.shape
    head_bytes = TILE * number.itemsize * (1 if matrix.offsets is None else 2)
    group_bytes = head_bytes + TILE * matrix.group_size * matrix.bits // 8
    return -(-outputs // TILE), inputs // matrix.group_size, group_bytes


def check_fits(matrix: QuantisedMatrix | HeldRows) -> None:
    """PackingError for a matrix that the kernel cannot read."""
    inputs, group = matrix.shape[1], matrix.group_size
    if inputs % PIECE or inputs % group:
        raise PackingError(f"{inputs} inputs are not whole groups of {group}, or not of {PIECE}")
    if group % PIECE and (group != HALF_PIECE or (matrix.bits != 8 and not matrix.is_e2m1)):
        raise PackingError(f"groups of {group} with {matrix.bits} bits are not what the kernel reads")


def fits(matrix: QuantisedMatrix) -> bool:
    """True for a matrix that the kernel can read."""
    try:
        check_fits(matrix)
    except PackingError:
        return False
    return True


def number_type(matrix: QuantisedMatrix | HeldRows) -> torch.dtype:
    """float16 where all scales and offsets are numbers of it, else float32."""
    values = [part for part in (matrix.scales, matrix.offsets) if part is not None]
    fits = all(torch.equal(part.half().to(part.dtype), part) for part in values)
    return torch.float16 if fits else torch.float32


def _pack(matrix: HeldRows, number: torch.dtype, packed: torch.Tensor) -> None:
    outputs, inputs = matrix.shape
    codes = TiledRows([part.codes for part in matrix.parts], matrix.order, NO_CODES[matrix.bits])
    step = max(1, CODES_AT_ONCE // (TILE * inputs))
    for first in range(0, len(packed), step):
        to = packed[first : first + step]
        rows = slice(first * TILE, min((first + len(to)) * TILE, outputs))
        _pack_numbers(
            [each[rows] for each in (matrix.scales, matrix.offsets) if each is not None], number, to
        )
        head_bytes = to.shape[2] - TILE * matrix.group_size * matrix.bits // 8
        codes.pack(slice(first, first + len(to)), to, head_bytes=head_bytes, flips=FLIPS[matrix.bits])
        matrix.give_up(rows)


def _pack_numbers(numbers: list[torch.Tensor], number: torch.dtype, to: torch.Tensor) -> None:
    """Scales, and offsets if there are any, `[rows, groups]`, to the heads of the groups of tiles."""
    width = TILE * number.itemsize
    for place, values in enumerate(numbers):
        filled = F.pad(values, (0, 0, 0, len(to) * TILE - len(values)))
        columns = filled.view(len(to), TILE, -1).transpose(1, 2).to(number).contiguous()
        to[..., place * width : (place + 1) * width] = columns.view(torch.uint8)


def _unarranged(stored: torch.Tensor, group: int, bits: int) -> torch.Tensor:
    """`[tiles, groups, bytes]` uint8 to `[32 * tiles, inputs]` int8."""
    num_tiles, num_groups, _ = stored.shape
    if bits == 8:
        unsigned = stored.reshape(num_tiles, num_groups, group // 4, TILE, 4).permute(0, 3, 1, 2, 4)
        return (unsigned ^ 0x80).view(torch.int8).reshape(num_tiles * TILE, -1)
    words = stored.reshape(num_tiles, num_groups, group // 8, TILE, 4)
    halves = torch.stack((words & 15, words >> 4)).permute(1, 4, 2, 3, 0, 5)
    return (halves - 8).view(torch.int8).reshape(num_tiles * TILE, -1)
