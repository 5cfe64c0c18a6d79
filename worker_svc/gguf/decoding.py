"""What the blocks of a GGUF tensor are: whole numbers with scales, or numbers as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch

from worker_svc.gguf.blocks import Storage
from worker_svc.runner.errors import ModelLoadError
from worker_svc.weights.quantised import QuantisedMatrix

Parts: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
"""Codes int8 `[blocks, numbers]`, scales and offsets float32 `[blocks, groups]`."""
PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
IQ4_CODES = torch.tensor(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=torch.int8
)
FOUR_BITS = ("Q4_0", "Q4_1", "Q4_K")


def decode(
    name: str, stored: torch.Tensor, storage: Storage, shape: tuple[int, ...]
) -> torch.Tensor | QuantisedMatrix:
    """The tensor `name` of bytes `[n]` that are stored so. ModelLoadError for a scale that is not finite."""
    if storage.name in PLAIN:
        return stored.view(PLAIN[storage.name]).view(shape)
    codes, scales, offsets = BLOCKS[storage.name](stored.view(-1, storage.block_bytes))
    rows = shape[0] if len(shape) > 1 else 1
    for part in (scales, offsets):
        if part is not None and not bool(part.isfinite().all()):
            raise ModelLoadError(f"{name} has a scale that is not finite.")
    matrix = QuantisedMatrix(
        codes=codes.view(rows, -1),
        scales=scales.view(rows, -1),
        offsets=None if offsets is None else offsets.view(rows, -1),
        bits=bits_of(storage) or 8,
        group_size=storage.block_elements // scales.shape[1],
    )
    return matrix if len(shape) > 1 else matrix.dequantise().view(shape)


def bits_of(storage: Storage) -> int | None:
    """Bits of the whole numbers that are made of it; None: it is numbers as they are."""
    if storage.name in PLAIN:
        return None
    return 4 if storage.name in FOUR_BITS else 8


def _half(blocks: torch.Tensor, start: int) -> torch.Tensor:
    """float32 `[blocks, 1]` of the 16 bits that begin there."""
    return blocks[:, start : start + 2].contiguous().view(torch.float16).float()


def _nibbles(stored: torch.Tensor) -> torch.Tensor:
    """uint8 `[blocks, 2n]` of `[blocks, n]`: all the lower halves, then the higher ones."""
    return torch.cat((stored & 15, stored >> 4), dim=1)


def _fifth_bits(stored: torch.Tensor) -> torch.Tensor:
    """uint8 `[blocks, 32]`, 16 or 0, of four bytes for each block: a bit for each number."""
    bits = torch.arange(8, dtype=torch.uint8)
    return (stored[:, :, None] >> bits & 1).flatten(1) << 4


def _q4_0(blocks: torch.Tensor) -> Parts:
    return (_nibbles(blocks[:, 2:]) - 8).view(torch.int8), _half(blocks, 0), None


def _q4_1(blocks: torch.Tensor) -> Parts:
    """Scale and least number, which belongs to code 0; codes are less 8 here."""
    scales = _half(blocks, 0)
    return (_nibbles(blocks[:, 4:]) - 8).view(torch.int8), scales, _half(blocks, 2) + 8 * scales


def _q5_0(blocks: torch.Tensor) -> Parts:
    codes = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])
    return (codes - 16).view(torch.int8), _half(blocks, 0), None


def _q5_1(blocks: torch.Tensor) -> Parts:
    codes = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])
    return codes.view(torch.int8), _half(blocks, 0), _half(blocks, 2)


def _q8_0(blocks: torch.Tensor) -> Parts:
    return blocks[:, 2:].contiguous().view(torch.int8), _half(blocks, 0), None


def _iq4_nl(blocks: torch.Tensor) -> Parts:
    return IQ4_CODES[_nibbles(blocks[:, 2:]).int()], _half(blocks, 0), None


def _iq4_xs(blocks: torch.Tensor) -> Parts:
    """Eight groups of 32, whose scales are of six bits: four in four bytes, and two in a word for all of them."""
    groups = torch.arange(8)
    low = blocks[:, 4:8].repeat_interleave(2, dim=1) >> (4 * (groups % 2)).to(torch.uint8) & 15
    high = blocks[:, 2:4].repeat_interleave(4, dim=1) >> (2 * (groups % 4)).to(torch.uint8) & 3
    scales = (low | high << 4).float() - 32
    parts = blocks[:, 8:].reshape(-1, 8, 16)
    codes = torch.cat((parts & 15, parts >> 4), dim=2).flatten(1)
    return IQ4_CODES[codes.int()], _half(blocks, 0) * scales, None


def _pairs_of_bits(stored: torch.Tensor) -> torch.Tensor:
    """uint8 `[blocks, 2, 4, 32]`, 0 to 3, of 64 bytes: of each 32 bytes the lowest two bits, then the next ones."""
    parts = stored.reshape(-1, 2, 1, 32)
    return parts >> torch.tensor([0, 2, 4, 6], dtype=torch.uint8)[:, None] & 3


def _q2_k(blocks: torch.Tensor) -> Parts:
    """Sixteen groups of 16, with a byte for scale and least number of each."""
    scales, least = (blocks[:, :16] & 15).float(), (blocks[:, :16] >> 4).float()
    codes = _pairs_of_bits(blocks[:, 16:80]).flatten(1)
    return codes.view(torch.int8), _half(blocks, 80) * scales, -_half(blocks, 82) * least


def _q3_k(blocks: torch.Tensor) -> Parts:
    """As `_q2_k`, without least numbers: bit `i` of byte `n` of 32 is the third of number `n` of run `i`, and scales
    are of six bits, less 32."""
    third = blocks[:, None, :32] >> torch.arange(8, dtype=torch.uint8)[:, None] & 1
    codes = (_pairs_of_bits(blocks[:, 32:96]).flatten(1) | third.flatten(1) << 2) - 4
    stored = blocks[:, 96:108]
    low = torch.cat((stored[:, :8] & 15, stored[:, :8] >> 4), dim=1)
    high = torch.cat([stored[:, 8:] >> shift & 3 for shift in (0, 2, 4, 6)], dim=1)
    return codes.view(torch.int8), _half(blocks, 108) * ((low | high << 4).float() - 32), None


def _six_bits(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales and least numbers, uint8 `[blocks, 8]` each, of twelve bytes: four of the first four scales, four of the
    first four least numbers, and four with the lower halves of the others, whose two high bits are in the first."""
    first, second, low = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = torch.cat((first & 63, low & 15 | first >> 6 << 4), dim=1)
    return scales, torch.cat((second & 63, low >> 4 | second >> 6 << 4), dim=1)


def _halves_of_pairs(stored: torch.Tensor) -> torch.Tensor:
    """uint8 `[blocks, 256]` of 128 bytes: of each 32 bytes the lower halves, then the higher ones."""
    parts = stored.reshape(-1, 4, 32)
    return torch.stack((parts & 15, parts >> 4), dim=2).flatten(1)


def _q4_k(blocks: torch.Tensor) -> Parts:
    """Eight groups of 32; a number is code * scale - least, codes are less 8 here."""
    scales, least = _six_bits(blocks)
    wide = _half(blocks, 0) * scales
    codes = _halves_of_pairs(blocks[:, 16:]) - 8
    return codes.view(torch.int8), wide, 8 * wide - _half(blocks, 2) * least


def _q5_k(blocks: torch.Tensor) -> Parts:
    """As `_q4_k`, with bit `i` of byte `n` of 32 for the number `n` of group `i`."""
    scales, least = _six_bits(blocks)
    bits = torch.arange(8, dtype=torch.uint8)[None, :, None]
    fifth = (blocks[:, None, 16:48] >> bits & 1).flatten(1) << 4
    codes = _halves_of_pairs(blocks[:, 48:]) | fifth
    return codes.view(torch.int8), _half(blocks, 0) * scales, -_half(blocks, 2) * least


def _q6_k(blocks: torch.Tensor) -> Parts:
    """Sixteen groups of 16, scales of a byte each. Of each 64 and 32 bytes come four times 32 numbers."""
    low = blocks[:, :128].reshape(-1, 2, 2, 32)
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32)
    halves = torch.cat((low & 15, low >> 4), dim=2)
    pairs = high >> torch.tensor([0, 2, 4, 6], dtype=torch.uint8)[:, None] & 3
    codes = (halves | pairs << 4).flatten(1) - 32
    scales = blocks[:, 192:208].contiguous().view(torch.int8).float()
    return codes.view(torch.int8), _half(blocks, 208) * scales, None


BLOCKS: dict[str, Callable[[torch.Tensor], Parts]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
}
"""Who reads blocks uint8 `[blocks, bytes]`, by the name of the storage."""
