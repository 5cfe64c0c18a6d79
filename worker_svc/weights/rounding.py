"""Rounds the numbers of a matrix to 8 or 4 bits, in groups with a scale each."""

from __future__ import annotations

import torch

from worker_svc.weights.quantised import QuantisedMatrix

GROUP_SIZE = 32
ROW_PIECE = 32
LARGEST_ROW_CODE = 127.0 * 256
CHUNK_ELEMENTS = 1 << 22
"""Numbers that are worked on at a time: what it takes beside the result."""
LARGEST = {4: 8, 8: 127}
"""The size of the code that the largest number of a group gets."""
SHARES = (0.95, 0.9, 0.85, 0.8, 1.05)
"""Other scales tried for 4 bits, in shares of the one that reaches the largest number: below it, that one is cut off,
and the others come nearer."""
SMALLEST_NORMAL, LARGEST_HALF = 2.0**-14, 65504.0


def round_matrix(weight: torch.Tensor, bits: int, group_size: int = GROUP_SIZE) -> QuantisedMatrix:
    """`weight` `[outputs, inputs]` in any dtype, inputs in whole groups. Scales are numbers of float16 if they can be.

    Numbers that are not finite leave a scale that is not.
    """
    outputs, inputs = weight.shape
    codes = torch.empty(outputs, inputs, dtype=torch.int8)
    scales = torch.empty(outputs, inputs // group_size)
    step = max(1, CHUNK_ELEMENTS // inputs)
    for start in range(0, outputs, step):
        rows = slice(start, start + step)
        groups = weight[rows].float().view(-1, inputs // group_size, group_size)
        part_codes, part_scales = _round_groups(groups, bits)
        codes[rows], scales[rows] = part_codes.view(-1, inputs), part_scales
    return QuantisedMatrix(codes, scales, None, bits, group_size)


def round_rows(rows: torch.Tensor) -> torch.Tensor:
    """`rows` `[..., inputs]` as products with whole numbers take them, in float32: 16 bits, and a scale for each
    `ROW_PIECE`, of which inputs are whole ones. A number that is not finite spoils its piece."""
    pieces = rows.float().view(*rows.shape[:-1], -1, ROW_PIECE)
    largest = pieces.abs().amax(-1, keepdim=True)
    inverse = torch.where(largest > 0, torch.full_like(largest, LARGEST_ROW_CODE) / largest, 0.0)
    # In float64, where the product is exact: kernels round once.
    codes = (pieces.double() * inverse.double()).round().float()
    return (codes * (largest / LARGEST_ROW_CODE)).view(rows.shape)


def _round_groups(groups: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes `[rows, groups, size]` and scales `[rows, groups]`."""
    place = groups.abs().argmax(-1, keepdim=True)
    largest = groups.gather(-1, place)[..., 0]
    if bits == 8:
        return _with_scale(groups, _to_half(largest.abs() / LARGEST[8]), -127, 127)
    # The sign goes into the scale: -8 is a code, 8 is none.
    best_codes, best_scales = _with_scale(groups, _to_half(largest / -LARGEST[4]), -8, 7)
    best_errors = _errors(groups, best_codes, best_scales)
    for share in SHARES:
        codes, scales = _with_scale(groups, _to_half(largest * (-share / LARGEST[4])), -8, 7)
        errors = _errors(groups, codes, scales)
        better = errors < best_errors
        best_codes = torch.where(better[..., None], codes, best_codes)
        best_scales = torch.where(better, scales, best_scales)
        best_errors = torch.where(better, errors, best_errors)
    return best_codes, best_scales


def _errors(groups: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return (codes * scales[..., None] - groups).square().sum(-1)


def _with_scale(
    groups: torch.Tensor, scales: torch.Tensor, least: int, most: int
) -> tuple[torch.Tensor, torch.Tensor]:
    divisors = torch.where(scales == 0, torch.ones_like(scales), scales)[..., None]
    return (groups / divisors).round().clamp(least, most).nan_to_num().to(torch.int8), scales


def _to_half(scales: torch.Tensor) -> torch.Tensor:
    """Rounded to numbers of float16, where they are in its range."""
    sizes = scales.abs()
    fits = (sizes >= SMALLEST_NORMAL) & (sizes <= LARGEST_HALF)
    return torch.where(fits, scales.half().float(), scales)
