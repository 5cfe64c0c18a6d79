"""The paged KV cache: one K and one V tensor per layer, cut into blocks of `block_size` positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from signalbox.protocol.block_groups import SPINE
from worker_svc.core.batch import BlockCopy
from worker_svc.runner.cpu.huge_pages import allocate
from worker_svc.runner.cuda.copies.pinned import host_empty
from worker_svc.transfer.shared_memory import SharedMemory


@dataclass(frozen=True)
class LayerShape:
    """What one layer keeps per position: so many keys of `key_dim` and values of `value_dim` elements."""

    num_kv_heads: int
    key_dim: int
    value_dim: int
    values_in_keys: bool = False
    """A value is the first `value_dim` elements of its key, and kept only there (latent.py)."""
    sees: tuple[int, int] | None = None
    """What a query sees behind it: a `BlockGroupKind` and a reach in positions; None: all."""
    shares: int | None = None
    """The layer ahead of it whose keys and values it reads; None: it has its own."""

    @property
    def elements(self) -> int:
        """Elements that are kept per position, K and V together; 0 of a layer that reads another's."""
        if self.shares is not None:
            return 0
        return self.num_kv_heads * (self.key_dim + (0 if self.values_in_keys else self.value_dim))


NO_KV = LayerShape(0, 0, 0)
"""A layer without attention."""


@dataclass(frozen=True)
class LayerCache:
    """One layer's part of the cache. One head's positions of a block are contiguous."""

    keys: torch.Tensor
    """[num_blocks, num_kv_heads, block_size, key_dim]"""
    values: torch.Tensor
    """[num_blocks, num_kv_heads, block_size, value_dim]; where `values_in_keys`, a part of the keys."""
    values_in_keys: bool = False

    @property
    def stored(self) -> tuple[torch.Tensor, ...]:
        """The tensors that have memory of their own."""
        return (self.keys,) if self.values_in_keys else (self.keys, self.values)

    def write(
        self, key: torch.Tensor, value: torch.Tensor, block_ids: torch.Tensor, offsets: torch.Tensor
    ) -> None:
        """Stores `[T, num_kv_heads, dim]` keys and values at `offsets` of the blocks `block_ids`, `[T]`."""
        self.keys[block_ids, :, offsets] = key
        if not self.values_in_keys:
            self.values[block_ids, :, offsets] = value


class KVCache:
    """All layers' caches. A block id means the same block in all layers of a group; who holds it is decided
    elsewhere."""

    def __init__(
        self,
        shapes: list[LayerShape],
        *,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        blocks_of: Callable[[int], int] | None = None,
        of_layers: Sequence[int] = (),
        shared: SharedMemory | None = None,
    ) -> None:
        """num_blocks: of the spine. blocks_of: those of each layer; of_layers: number of each layer's group. Without
        these all layers are the spine's. shared: where it lies, on a CPU; None: in memory of this process alone."""
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._shapes, self._of_layers = shapes, tuple(of_layers) or (SPINE,) * len(shapes)
        self.host_layers: list[LayerCache] = []
        counts = [num_blocks if blocks_of is None else blocks_of(layer) for layer in range(len(shapes))]
        self.shared = shared
        self.layers = make_layers(
            shapes,
            lambda layer, heads, dim: allocate(
                (counts[layer], heads, block_size, dim), dtype, device, shared=shared
            ),
        )

    def add_host_tier(self, counts: Sequence[int]) -> None:
        """Takes host memory for blocks that the device's cache may have to evict, so many of each group."""
        first = self.layers[0].keys
        self.host_layers = make_layers(
            self._shapes,
            lambda layer, heads, dim: host_empty(
                (counts[self._of_layers[layer]], heads, self.block_size, dim),
                first.dtype,
                is_pinned=first.is_cuda,
            ),
        )

    def stored_in(self, group: int) -> list[torch.Tensor]:
        """The tensors of a group's layers that have memory of their own, `[num_blocks, ...]` each, in order."""
        return [
            stored
            for layer in self._layers_in(group)
            for stored in self.layers[layer].stored
            if stored.numel()
        ]

    def host_stored_in(self, group: int) -> list[torch.Tensor]:
        """The tensors of the host tier for those of `stored_in`; none: there is no host tier."""
        layers = self._layers_in(group) if self.host_layers else []
        return [
            saved
            for layer in layers
            for stored, saved in zip(self.layers[layer].stored, self.host_layers[layer].stored, strict=True)
            if stored.numel()
        ]

    def _layers_in(self, group: int) -> list[int]:
        """Layers of a group that write keys and values of their own."""
        return [
            layer for layer, number in enumerate(self._of_layers) if number == group and self.has_own(layer)
        ]

    def has_own(self, layer: int) -> bool:
        """Whether a layer writes keys and values of its own; False: it reads those of another layer."""
        return self._shapes[layer].shares is None

    def copy_block(self, copy: BlockCopy) -> None:
        """Copies one block of all layers of its group between device and host tier, or inside of one of them."""
        sources = self.host_layers if copy.source_is_host else self.layers
        targets = self.host_layers if copy.target_is_host else self.layers
        for layer, group in enumerate(self._of_layers):
            if group != copy.group or not self.has_own(layer):
                continue
            for to, of in zip(targets[layer].stored, sources[layer].stored, strict=True):
                to[copy.target].copy_(of[copy.source], non_blocking=True)

    def fill(self, value: float) -> None:
        """Sets every position of every block, so that a read of a position that was never written shows."""
        for layer in self.layers:
            for stored in layer.stored:
                stored.fill_(value)


def make_layers(shapes: list[LayerShape], make: Callable[[int, int, int], torch.Tensor]) -> list[LayerCache]:
    """All layers' caches; `make` takes memory for a layer's positions, for so many heads of so many elements each. One
    that shares is the cache of the layer that it reads."""
    layers: list[LayerCache] = []
    for layer, shape in enumerate(shapes):
        shared = None if shape.shares is None else layers[shape.shares]
        layers.append(shared or make_layer(shape, partial(make, layer)))
    return layers


def make_layer(shape: LayerShape, make: Callable[[int, int], torch.Tensor]) -> LayerCache:
    """A layer's cache; `make` takes memory for so many heads of so many elements per position."""
    keys = make(shape.num_kv_heads, shape.key_dim)
    if shape.values_in_keys:
        return LayerCache(keys, keys[..., : shape.value_dim], values_in_keys=True)
    return LayerCache(keys, make(shape.num_kv_heads, shape.value_dim))


def bytes_per_block(shapes: list[LayerShape], block_size: int, dtype: torch.dtype) -> int:
    """Bytes that one block takes in all layers."""
    return sum(shape.elements for shape in shapes) * block_size * dtype.itemsize
