"""How GGUF stores numbers: in blocks of 32 with a scale, or one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
BLOCK = 32
"""Numbers in a block."""


@dataclass(frozen=True)
class Storage:
    """One way to store numbers."""

    name: str
    block_elements: int
    block_bytes: int
    decode: Callable[[NDArray[np.uint8]], Floats]
    """Blocks as rows of bytes to blocks as rows of numbers."""

    def num_bytes(self, num_elements: int) -> int:
        """Bytes of so many numbers, which fill their blocks."""
        return num_elements // self.block_elements * self.block_bytes


def dequantise(stored: bytes, storage: Storage) -> Floats:
    """The numbers, one behind the other."""
    blocks = np.frombuffer(stored, np.uint8).reshape(-1, storage.block_bytes)
    return storage.decode(blocks).reshape(-1)


def _float32(blocks: NDArray[np.uint8]) -> Floats:
    return blocks.view("<f4").astype(np.float32)


def _float16(blocks: NDArray[np.uint8]) -> Floats:
    return blocks.view("<f2").astype(np.float32)


def _bfloat16(blocks: NDArray[np.uint8]) -> Floats:
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _q4_1(blocks: NDArray[np.uint8]) -> Floats:
    """Scale, least value, then 16 bytes: the first 16 numbers in the low halves, the others in the high ones."""
    scale, least = _float16(blocks[:, 0:2].copy()), _float16(blocks[:, 2:4].copy())
    halves = blocks[:, 4:]
    numbers = np.concatenate([halves & 0x0F, halves >> 4], axis=1).astype(np.float32)
    return scale * numbers + least


def _q8_0(blocks: NDArray[np.uint8]) -> Floats:
    """Scale, then a signed byte for each number."""
    return _float16(blocks[:, 0:2].copy()) * blocks[:, 2:].view(np.int8).astype(np.float32)


STORAGES = {
    0: Storage("F32", 1, 4, _float32),
    1: Storage("F16", 1, 2, _float16),
    3: Storage("Q4_1", BLOCK, 4 + BLOCK // 2, _q4_1),
    8: Storage("Q8_0", BLOCK, 2 + BLOCK, _q8_0),
    30: Storage("BF16", 1, 2, _bfloat16),
}
"""The ways to store numbers, by the number of their GGML type."""
