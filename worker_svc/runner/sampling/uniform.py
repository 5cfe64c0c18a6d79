"""Counter-based uniform random numbers: the same key gives the same number, whatever was drawn before."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]

MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
WEYL_INCREMENTS = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
ROUNDS = 10
LOW_32 = np.uint64(0xFFFFFFFF)
SHIFT_32 = np.uint64(32)


class Purpose(IntEnum):
    """What a number is drawn for, so that two uses at one position are independent."""

    SAMPLE = 0


def philox4x32(counter: NDArray[np.integer], key: NDArray[np.integer]) -> U32:
    """Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

    `counter` is `[N, 4]`, `key` `[N, 2]`, both of 32-bit words. Returns `[N, 4]` random words.
    """
    x0, x1, x2, x3 = np.ascontiguousarray(counter.T, dtype=np.uint64)
    k0, k1 = np.ascontiguousarray(key.T, dtype=np.uint64)
    for _ in range(ROUNDS):
        product0, product1 = MULTIPLIERS[0] * x0, MULTIPLIERS[1] * x2
        x0, x1, x2, x3 = (
            (product1 >> SHIFT_32) ^ x1 ^ k0,
            product1 & LOW_32,
            (product0 >> SHIFT_32) ^ x3 ^ k1,
            product0 & LOW_32,
        )
        k0, k1 = (k0 + WEYL_INCREMENTS[0]) & LOW_32, (k1 + WEYL_INCREMENTS[1]) & LOW_32
    return np.stack([x0, x1, x2, x3], axis=1).astype(np.uint32)


def uniforms(
    seeds: U64, choice_indices: ArrayLike, output_positions: ArrayLike, purpose: Purpose
) -> NDArray[np.float64]:
    """`[N]` numbers in [0, 1) with 53 random bits, one per (seed, choice index, output position, purpose)."""
    counter = np.zeros((len(seeds), 4), np.uint64)
    counter[:, 0] = output_positions
    counter[:, 1] = choice_indices
    counter[:, 2] = int(purpose)
    key = np.stack([seeds & LOW_32, seeds >> SHIFT_32], axis=1)
    words = philox4x32(counter, key).astype(np.uint64)
    high, low = words[:, 0] >> np.uint64(5), words[:, 1] >> np.uint64(6)
    return np.asarray((high * np.float64(1 << 26) + low) * np.float64(2.0**-53))
