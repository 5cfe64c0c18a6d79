"""The bytes of blocks of a real cache: what was read of one stands in another, bit for bit, and nothing beside it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from worker_svc.disk.memory import BlockMemory
from worker_svc.runner.attention.block_bytes import BlockBytes
from worker_svc.runner.attention.kv_cache import KVCache, LayerShape

CPU = torch.device("cpu")


def cache_of(
    shapes: list[LayerShape], dtype: torch.dtype, counts: list[int], of_layers: list[int]
) -> KVCache:
    cache = KVCache(
        shapes,
        num_blocks=counts[0],
        block_size=4,
        dtype=dtype,
        device=CPU,
        blocks_of=lambda layer: counts[layer],
        of_layers=of_layers,
    )
    for layer in cache.layers:
        for stored in layer.stored:
            stored.copy_(torch.randn(stored.shape))
    return cache


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_blocks_move_bit_for_bit_and_in_their_group(dtype: torch.dtype) -> None:
    """DT3, DT4, C14, C15: keys and values of other sizes, latents, and layers that read another's."""
    shapes = [
        LayerShape(2, 8, 4),
        LayerShape(1, 16, 16),
        LayerShape(1, 6, 4, values_in_keys=True),
        LayerShape(2, 8, 4, shares=0),
    ]
    cache = cache_of(shapes, dtype, [10, 6, 10, 10], [0, 1, 0, 0])
    memory = BlockBytes(cache, 2, CPU)
    assert isinstance(memory, BlockMemory)
    size = dtype.itemsize * 4
    assert memory.record_bytes() == [(2 * 12 + 6) * size, 32 * size]
    before = [[stored.clone() for stored in layer.stored] for layer in cache.layers]
    content = memory.reads_aside(0, np.array([3, 5], np.int32))()
    memory.writes_aside(0, np.array([8, 1], np.int32))(content)
    for number in (0, 2):
        for stored, old in zip(cache.layers[number].stored, before[number], strict=True):
            assert torch.equal(stored[8], old[3]) and torch.equal(stored[1], old[5])
            others = [0, 2, 3, 4, 5, 6, 7, 9]
            assert torch.equal(stored[others], old[others])
    for stored, old in zip(cache.layers[1].stored, before[1], strict=True):
        assert torch.equal(stored, old)
    window = memory.reads_aside(1, np.array([2], np.int32))()
    memory.writes_aside(1, np.array([0], np.int32))(window)
    assert torch.equal(cache.layers[1].keys[0], before[1][0][2])
