"""Weights kept as whole numbers, in the order in which the kernel reads them."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812

from worker_svc.runner.cpu.huge_pages import allocate
from worker_svc.runner.cpu.native.kernels import TILE
from worker_svc.runner.cpu.native.structs import PackedCall
from worker_svc.runner.cpu.packed_linear import PackingError
from worker_svc.weights.quantised import QuantisedMatrix

PIECE, HALF_PIECE = 32, 16
"""Inputs whose products the kernel adds up exactly: those of 32 share a scale in a row."""
TILES_AT_ONCE = 64
"""Tiles that are packed together: what is packed needs memory twice."""


class PackedCodes:
    """A matrix and a bias `[outputs]` float32.

    In tiles of 32 columns, and in these by groups of inputs: 32 scales, 32 offsets if there are any, and then
    the codes without sign, for each 4 inputs (8 of 4 bits: 4 in the low halves of the bytes, 4 in the high ones) those
    of one column behind another.
    """

    def __init__(self, matrix: QuantisedMatrix, bias: torch.Tensor | None = None) -> None:
        outputs, inputs = matrix.shape
        check_fits(matrix)
        num_tiles = -(-outputs // TILE)
        number = number_type(matrix)
        has_offsets = matrix.offsets is not None
        head_bytes = TILE * number.itemsize * (1 + has_offsets)
        group_bytes = head_bytes + TILE * matrix.group_size * matrix.bits // 8
        self.packed = allocate((num_tiles, inputs // matrix.group_size, group_bytes), torch.uint8)
        for first in range(0, num_tiles, TILES_AT_ONCE):
            part = slice(first, min(first + TILES_AT_ONCE, num_tiles))
            self._pack(matrix, part, number, self.packed[part])
        self.bias = None if bias is None else F.pad(bias.float(), (0, num_tiles * TILE - outputs))
        self.call = PackedCall(
            self.packed.data_ptr(),
            None if self.bias is None else self.bias.data_ptr(),
            inputs,
            outputs,
            matrix.group_size,
            matrix.bits,
            number.itemsize,
            has_offsets,
        )

    def _pack(self, matrix: QuantisedMatrix, tiles: slice, number: torch.dtype, to: torch.Tensor) -> None:
        at = 0
        for values in (matrix.scales, matrix.offsets):
            if values is not None:
                columns = _columns(values, tiles).transpose(1, 2).to(number).contiguous()
                to[..., at : at + TILE * number.itemsize] = columns.view(torch.uint8)
                at += TILE * number.itemsize
        to[..., at:] = _arranged(_columns(matrix.codes, tiles), matrix.group_size, matrix.bits)


def check_fits(matrix: QuantisedMatrix) -> None:
    """PackingError for a matrix that the kernel cannot read."""
    inputs, group = matrix.shape[1], matrix.group_size
    if inputs % PIECE or inputs % group:
        raise PackingError(f"{inputs} inputs are not whole groups of {group}, or not of {PIECE}")
    if group % PIECE and (group != HALF_PIECE or matrix.bits != 8):
        raise PackingError(f"groups of {group} with {matrix.bits} bits are not what the kernel reads")


def fits(matrix: QuantisedMatrix) -> bool:
    """True for a matrix that the kernel can read."""
    try:
        check_fits(matrix)
    except PackingError:
        return False
    return True


def number_type(matrix: QuantisedMatrix) -> torch.dtype:
    """float16 where all scales and offsets are numbers of it, else float32."""
    values = [part for part in (matrix.scales, matrix.offsets) if part is not None]
    fits = all(torch.equal(part.half().float(), part) for part in values)
    return torch.float16 if fits else torch.float32


def _columns(values: torch.Tensor, tiles: slice) -> torch.Tensor:
    """Rows of these tiles, `[tiles, 32, width]`; zeros where there are no more."""
    rows = values[tiles.start * TILE : tiles.stop * TILE]
    missing = (tiles.stop - tiles.start) * TILE - len(rows)
    return F.pad(rows, (0, 0, 0, missing)).view(-1, TILE, values.shape[1])


def _arranged(codes: torch.Tensor, group: int, bits: int) -> torch.Tensor:
    """`[tiles, 32, inputs]` int8 to `[tiles, groups, bytes]` uint8."""
    num_tiles = len(codes)
    if bits == 8:
        unsigned = (codes.view(torch.uint8) ^ 0x80).view(num_tiles, TILE, -1, group // 4, 4)
        return unsigned.permute(0, 2, 3, 1, 4).reshape(num_tiles, -1, TILE * group)
    unsigned = (codes + 8).view(torch.uint8).view(num_tiles, TILE, -1, group // 8, 2, 4)
    halves = unsigned.permute(4, 0, 2, 3, 1, 5)
    return (halves[0] | halves[1] << 4).reshape(num_tiles, -1, TILE * group // 2)
