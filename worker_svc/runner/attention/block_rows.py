"""The blocks of a KV cache as rows of bytes, and the memory that lets other processes read them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from signalbox.protocol.block_groups import SPINE, BlockGroup
from worker_svc.runner.attention.kv_cache import KVCache, LayerShape
from worker_svc.runner.cpu.native.row_copies import copier_here
from worker_svc.transfer.block_memory import BlockMemory, Strip, strip_of
from worker_svc.transfer.row_copies import numpy_copier
from worker_svc.transfer.shared_memory import SharedMemory, room_for

logger = logging.getLogger(__name__)


def shared_memory_for(
    shapes: Sequence[LayerShape], counts: Sequence[int], block_size: int, dtype: torch.dtype
) -> SharedMemory | None:
    """Memory for a cache of so many blocks in each layer; None, which is logged, where the system has none."""
    sizes = [
        size
        for shape, count in zip(shapes, counts, strict=True)
        for size in _sizes(shape, count * block_size * dtype.itemsize)
    ]
    try:
        return SharedMemory(room_for(*sizes))
    except OSError as error:
        logger.warning("The KV cache cannot be shared with other workers of this machine: %s", error)
        return None


def block_memory_of(cache: KVCache, kinds: tuple[BlockGroup, ...]) -> BlockMemory | None:
    """The blocks of a cache of a CPU whose layers make these groups beside the spine; None: they are on a device."""
    if cache.layers[0].keys.device.type != "cpu":
        return None
    groups = [[_strip(stored) for stored in cache.stored_in(group)] for group in range(SPINE, 1 + len(kinds))]
    counts = [cache.num_blocks, *(kind.num_blocks for kind in kinds)]
    copier_of = numpy_copier if cache.shared is None else copier_here()
    return BlockMemory(groups, kinds, cache.block_size, cache.shared, counts=counts, copier_of=copier_of)


def _sizes(shape: LayerShape, bytes_per_element: int) -> list[int]:
    """Bytes of a layer's keys and values, each of which begins on a page."""
    if not shape.elements:
        return []
    dims = [shape.key_dim] if shape.values_in_keys else [shape.key_dim, shape.value_dim]
    return [shape.num_kv_heads * dim * bytes_per_element for dim in dims]


def _strip(stored: torch.Tensor) -> Strip:
    rows = stored.view(torch.uint8).view(len(stored), -1).numpy()
    return strip_of(rows, str(stored.dtype).removeprefix("torch."), tuple(stored.shape[1:]))
