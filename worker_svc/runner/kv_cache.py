"""The paged KV cache: one K and one V tensor per layer, cut into blocks of `block_size` positions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from worker_svc.core.batch import BlockCopy
from worker_svc.runner.errors import ModelLoadError

GIB = 1 << 30
CPU_MEMORY_SHARE = 0.4
"""Of the memory that is free after loading; the rest is for activations and for other processes."""
CPU_MEMORY_CAP_BYTES = 8 * GIB
CUDA_MEMORY_SHARE = 0.85


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
                keys=torch.empty(
                    (num_blocks, s.num_kv_heads, block_size, s.key_dim), dtype=dtype, device=device
                ),
                values=torch.empty(
                    (num_blocks, s.num_kv_heads, block_size, s.value_dim), dtype=dtype, device=device
                ),
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


def blocks_that_fit(block_bytes: int, memory_bytes: int | None, device: torch.device) -> int:
    """How many blocks go into `memory_bytes` (None: the default share). ModelLoadError if not even one."""
    budget = default_memory_bytes(device) if memory_bytes is None else memory_bytes
    num_blocks = budget // block_bytes
    if num_blocks < 1:
        raise ModelLoadError(
            f"kv_cache_memory of {budget} bytes does not hold one block of {block_bytes} bytes."
        )
    return num_blocks


def default_memory_bytes(device: torch.device) -> int:
    """Bytes for the KV cache when no setting says so."""
    if device.type == "cuda":
        free_bytes, _ = torch.cuda.mem_get_info(device)
        return int(free_bytes * CUDA_MEMORY_SHARE)
    return min(int(available_host_bytes() * CPU_MEMORY_SHARE), CPU_MEMORY_CAP_BYTES)


def available_host_bytes() -> int:
    """Memory that this process may still take: the machine's, or its container's if that is less."""
    return min(_machine_available_bytes(), _cgroup_available_bytes())


def _machine_available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise ModelLoadError("/proc/meminfo has no line MemAvailable, so kv_cache_memory must be set.")


def _cgroup_available_bytes() -> int:
    """By cgroup v2; a container sees its group at the root. Without a limit, more than any machine has."""
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if not (limit.is_file() and used.is_file()) or limit.read_text().strip() == "max":
        return 1 << 62
    return max(0, int(limit.read_text()) - int(used.read_text()))
