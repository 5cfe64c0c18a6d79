"""Small whole numbers packed into larger ones, the first into the lowest bits."""

from __future__ import annotations

import torch

BITS = (2, 3, 4, 8)


def unpack(words: torch.Tensor, bits: int) -> torch.Tensor:
    """uint8 `[..., n]` of the `n` numbers of `bits` each that lie in the last dimension, one right behind another."""
    stored = words.contiguous().view(torch.uint8)
    match bits:
        case 8:
            return stored
        case 4:
            return torch.stack((stored & 15, stored >> 4), dim=-1).flatten(-2)
        case 2:
            return torch.stack([stored >> shift & 3 for shift in (0, 2, 4, 6)], dim=-1).flatten(-2)
    assert bits == 3, "what BITS has"
    # Eight numbers in three bytes.
    triples = stored.view(*stored.shape[:-1], -1, 3).to(torch.int32)
    joined = triples[..., 0] | triples[..., 1] << 8 | triples[..., 2] << 16
    return torch.stack([(joined >> 3 * i & 7).to(torch.uint8) for i in range(8)], dim=-1).flatten(-2)


def signed(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """int8: the numbers less half of their range."""
    # 8 bits wrap round, which is the same.
    return (numbers - (1 << bits - 1)).view(torch.int8)
