"""The paged KV cache: one K and one V tensor per layer, cut into blocks of `block_size` positions."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from worker_svc.core.batch import BlockCopy
from worker_svc.runner.cpu.huge_pages import allocate


@dataclass(frozen=True)
class LayerShape:
    """What one layer keeps per position: so many keys of `key_dim` and values of `value_dim` elements."""

    num_kv_heads: int
    key_dim: int
    value_dim: int

    @property
    def elements(self) -> int:
        """Elements per position, K and V together."""
        return self.num_kv_heads * (self.key_dim + self.value_dim)


@dataclass(frozen=True)
class LayerCache:
    """One layer's part of the cache. One head's positions of a block are contiguous."""

    keys: torch.Tensor
    """[num_blocks, num_kv_heads, block_size, key_dim]"""
    values: torch.Tensor
    """[num_blocks, num_kv_heads, block_size, value_dim]"""

    def write(
        self, key: torch.Tensor, value: torch.Tensor, block_ids: torch.Tensor, offsets: torch.Tensor
    ) -> None:
        """Stores `[T, num_kv_heads, dim]` keys and values at `offsets` of the blocks `block_ids`, `[T]`."""
        self.keys[block_ids, :, offsets] = key
        self.values[block_ids, :, offsets] = value


class KVCache:
    """All layers' caches. A block id means the same block in all; who holds it is decided elsewhere."""

    def __init__(
        self,
        shapes: list[LayerShape],
        *,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.host_layers: list[LayerCache] = []
        self.layers = [
            LayerCache(
                keys=allocate((num_blocks, s.num_kv_heads, block_size, s.key_dim), dtype, device),
                values=allocate((num_blocks, s.num_kv_heads, block_size, s.value_dim), dtype, device),
            )
            for s in shapes
        ]

    def add_host_tier(self, num_blocks: int) -> None:
        """Takes host memory for `num_blocks` blocks that the device's cache may have to evict."""
        pinned = self.layers[0].keys.is_cuda
        self.host_layers = [
            LayerCache(
                *(
                    torch.empty((num_blocks, *cache.shape[1:]), dtype=cache.dtype, pin_memory=pinned)
                    for cache in (layer.keys, layer.values)
                )
            )
            for layer in self.layers
        ]

    def copy_block(self, copy: BlockCopy) -> None:
        """Copies one block of all layers between device and host tier, or inside of one of them."""
        sources = self.host_layers if copy.source_is_host else self.layers
        targets = self.host_layers if copy.target_is_host else self.layers
        for source, target in zip(sources, targets, strict=True):
            target.keys[copy.target].copy_(source.keys[copy.source], non_blocking=True)
            target.values[copy.target].copy_(source.values[copy.source], non_blocking=True)

    def fill(self, value: float) -> None:
        """Sets every position of every block, so that a read of a position that was never written shows."""
        for layer in self.layers:
            layer.keys.fill_(value)
            layer.values.fill_(value)


def bytes_per_block(shapes: list[LayerShape], block_size: int, dtype: torch.dtype) -> int:
    """Bytes that one block takes in all layers."""
    return sum(shape.elements for shape in shapes) * block_size * dtype.itemsize
