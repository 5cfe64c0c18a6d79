"""Rounds the numbers of a matrix to 8 bits, in groups with a scale each, and rows to 16."""

from __future__ import annotations

import torch

from worker_svc.weights.quantised import QuantisedMatrix

GROUP_SIZE = 32
ROW_PIECE = 32
LARGEST_ROW_CODE = 127.0 * 256
CHUNK_ELEMENTS = 1 << 20
"""Numbers that are worked on at a time: what it takes beside the result."""
LARGEST_CODE = 127
SMALLEST_NORMAL, LARGEST_HALF = 2.0**-14, 65504.0


def round_to_eight_bits(weight: torch.Tensor) -> QuantisedMatrix:
    """`weight` `[outputs, inputs]` in any dtype, inputs in whole groups. Scales are numbers of float16 if they can be.

    Numbers that are not finite leave a scale that is not.
    """
    outputs, inputs = weight.shape
    codes = torch.empty(outputs, inputs, dtype=torch.int8)
    scales = torch.empty(outputs, inputs // GROUP_SIZE)
    step = max(1, CHUNK_ELEMENTS // inputs)
    for start in range(0, outputs, step):
        rows = slice(start, start + step)
        groups = weight[rows].float().view(-1, inputs // GROUP_SIZE, GROUP_SIZE)
        largest = groups.abs().amax(-1)
        scales[rows] = _to_half(largest / LARGEST_CODE)
        codes[rows] = _codes(groups, scales[rows]).view(-1, inputs)
    return QuantisedMatrix(codes, scales, None, 8, GROUP_SIZE)


def round_rows(rows: torch.Tensor) -> torch.Tensor:
    """`rows` `[..., inputs]` as products with whole numbers take them, in float32: 16 bits, and a scale for each
    `ROW_PIECE`, of which inputs are whole ones. A number that is not finite spoils its piece."""
    pieces = rows.float().view(*rows.shape[:-1], -1, ROW_PIECE)
    largest = pieces.abs().amax(-1, keepdim=True)
    inverse = torch.where(largest > 0, torch.full_like(largest, LARGEST_ROW_CODE) / largest, 0.0)
    # In float64, where the product is exact: kernels round once.
    codes = (pieces.double() * inverse.double()).round().float()
    return (codes * (largest / LARGEST_ROW_CODE)).view(rows.shape)


def _codes(groups: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """int8, shaped as `groups` `[rows, groups, size]`, with scales `[rows, groups]`."""
    divisors = torch.where(scales == 0, torch.ones_like(scales), scales)[..., None]
    codes = (groups / divisors).round().clamp(-LARGEST_CODE, LARGEST_CODE)
    return codes.nan_to_num().to(torch.int8)


def _to_half(scales: torch.Tensor) -> torch.Tensor:
    """Rounded to numbers of float16, where they are in its range."""
    sizes = scales.abs()
    fits = (sizes >= SMALLEST_NORMAL) & (sizes <= LARGEST_HALF)
    return torch.where(fits, scales.half().float(), scales)
