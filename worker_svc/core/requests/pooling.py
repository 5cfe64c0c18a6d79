"""How one vector is made of the last hidden states of a prompt."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


class PoolingMode(IntEnum):
    """Which positions count for the vector; numbers as in generation.proto."""

    MEAN = 1
    LAST = 2
    CLS = 3


@dataclass(frozen=True)
class PoolingParams:
    """What one pooling request asks for, with all defaults filled in. Fields as in generation.proto."""

    mode: PoolingMode = PoolingMode.LAST
    is_raw: bool = False
    """Not scaled to length 1."""
    dimensions: int = 0
    """Only the first so many; 0: all."""

    def positions(self, num_tokens: int) -> tuple[int, int]:
        """Half-open range of the positions, of `num_tokens`, whose hidden states are summed."""
        if self.mode == PoolingMode.CLS:
            return 0, 1
        return (0 if self.mode == PoolingMode.MEAN else num_tokens - 1), num_tokens


def pooled_vector(hidden_sum: F64, num_tokens: int, params: PoolingParams) -> F32:
    """`[dimensions]` of the sum `[H]` over all positions that count of a prompt of `num_tokens` tokens."""
    start, end = params.positions(num_tokens)
    vector = hidden_sum[: params.dimensions or None] / (end - start)
    if not params.is_raw:
        vector /= max(float(np.linalg.norm(vector)), np.finfo(np.float64).tiny)
    return vector.astype(np.float32)
