"""Takes the memory of a model's KV cache, divided among the groups of its layers."""

from __future__ import annotations

import logging

import torch

from signalbox.protocol.block_groups import SPINE
from worker_svc.runner.attention.attention import PagedBatch
from worker_svc.runner.attention.block_rows import shared_memory_for
from worker_svc.runner.attention.kv_cache import KVCache, bytes_per_block
from worker_svc.runner.attention.layer_groups import (
    MEAN_TOKENS,
    MOST_BLOCKS,
    CacheLayout,
    Need,
    one_group,
    with_blocks,
    with_host_tier,
    within_bytes,
)
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.loading import LoadedModel
from worker_svc.runner.model.memory import (
    CacheSize,
    blocks_that_fit,
    check_cache_fits,
    default_cache_bytes,
    give_back,
    gpu_cache_bytes,
    in_gib,
)
from worker_svc.runner.model.memory_profile import StepUses, step_bytes

logger = logging.getLogger(__name__)


class CacheMaker:
    """How large the cache of a model is to be."""

    def __init__(
        self,
        model: LoadedModel,
        size: CacheSize,
        need: Need,
        *,
        draft_block_bytes: int = 0,
        num_scratch_blocks: int = 0,
        uses: StepUses | None = None,
    ) -> None:
        """draft_block_bytes: what a draft model takes of each block of the spine beside the model. num_scratch_blocks:
        blocks of each group behind those of the layout, which nobody is told of. uses: what the runner takes of a GPU
        beside forwards; None: nothing."""
        self._uses = uses or StepUses()
        self._model, self._size, self._need = model, size, need
        self._draft_block_bytes, self._num_scratch = draft_block_bytes, num_scratch_blocks

    @classmethod
    def of(
        cls,
        model: LoadedModel,
        size: CacheSize,
        *,
        block_size: int,
        mean_request_tokens: int | None,
        max_num_batched_tokens: int,
        max_model_len: int | None,
        max_draft_tokens: int = 0,
        draft_block_bytes: int = 0,
        num_scratch_blocks: int = 0,
        uses: StepUses | None = None,
    ) -> CacheMaker:
        """mean_request_tokens: None: as usual, or the longest request if that is less."""
        longest = max_model_len or model.max_position_embeddings
        mean = min(mean_request_tokens or MEAN_TOKENS, longest)
        need = Need(block_size, mean, max_num_batched_tokens, longest, max_draft_tokens)
        return cls(
            model,
            size,
            need,
            draft_block_bytes=draft_block_bytes,
            num_scratch_blocks=num_scratch_blocks,
            uses=uses,
        )

    def make(
        self, batch_class: type[PagedBatch], num_host_blocks: int, *, has_groups: bool, is_shared: bool
    ) -> tuple[KVCache, CacheLayout]:
        """The cache, its host tier included, and how it is divided. has_groups: False: all layers have the blocks of
        one group (WB8). is_shared: on a CPU it lies in memory that others can be let read (TR4). ModelLoadError if it
        does not fit beside the model."""
        model, need = self._model, self._need
        layout = with_host_tier(self._layout(batch_class, has_groups=has_groups), num_host_blocks, need)
        self._check_fits(layout, num_host_blocks)
        for group in layout.groups:
            logger.info(
                "layers that look back %d positions have %d blocks of their own, beside %d for all positions; "
                "in the host tier %d, beside %d",
                group.reach,
                group.num_blocks,
                layout.num_blocks,
                group.num_host_blocks,
                num_host_blocks,
            )
        counts = [layout.blocks_of(layer) + self._num_scratch for layer in range(len(model.layer_shapes))]
        shared = None
        if is_shared and model.device.type == "cpu":
            shared = shared_memory_for(model.layer_shapes, counts, need.block_size, model.dtype)
        cache = KVCache(
            model.layer_shapes,
            num_blocks=layout.num_blocks + self._num_scratch,
            block_size=need.block_size,
            dtype=model.dtype,
            device=model.device,
            blocks_of=counts.__getitem__,
            of_layers=layout.of_layers,
            shared=shared,
        )
        if num_host_blocks:
            cache.add_host_tier([num_host_blocks, *(group.num_host_blocks for group in layout.groups)])
        return cache, layout

    def requests_of(self, num_host_blocks: int) -> int:
        """Requests of the mean length that so many blocks of the host tier are for, rounded up."""
        return self._need.requests_of(num_host_blocks)

    def _layout(self, batch_class: type[PagedBatch], *, has_groups: bool) -> CacheLayout:
        layout, split = self._own_layout(batch_class, has_groups=has_groups), self._model.split
        if split is None or self._size.num_blocks is not None:
            return layout
        # All ranks have as many: the least that any of them has room for (RK8).
        num_blocks = split.everyone.least(layout.num_blocks)
        shapes, itemsize = self._model.group_shapes, self._model.dtype.itemsize
        return (
            with_blocks(shapes, num_blocks, self._need, itemsize)
            if has_groups
            else one_group(shapes, num_blocks)
        )

    def _own_layout(self, batch_class: type[PagedBatch], *, has_groups: bool) -> CacheLayout:
        model, need, num_blocks = self._model, self._need, self._size.num_blocks
        shapes, itemsize = model.group_shapes, model.dtype.itemsize
        if num_blocks is not None:
            return (
                with_blocks(shapes, num_blocks, need, itemsize)
                if has_groups
                else one_group(shapes, num_blocks)
            )
        if not self._block_bytes():  # all layers that attend are at other stages (RK15)
            return one_group(shapes, MOST_BLOCKS)
        num_bytes = self._cache_bytes(batch_class) - self._num_scratch * self._block_bytes()
        of_all = bytes_per_block(shapes, need.block_size, model.dtype) + self._draft_block_bytes
        # Where other stages have the other layers, what there is here is for a part of each block.
        layout = within_bytes(
            shapes, num_bytes * of_all // self._block_bytes(), need, itemsize, self._draft_block_bytes
        )
        if layout is not None and has_groups:
            return layout
        return one_group(shapes, blocks_that_fit(self._block_bytes(), num_bytes))

    def _block_bytes(self) -> int:
        model = self._model
        return (
            bytes_per_block(model.layer_shapes, self._need.block_size, model.dtype) + self._draft_block_bytes
        )

    def _group_bytes(self, layout: CacheLayout) -> list[int]:
        """Bytes of a block of each group but the spine, of the layers that are here."""
        model, size = self._model, self._need.block_size
        layers = list(zip(layout.of_layers, model.layer_shapes, strict=True))
        return [
            bytes_per_block([shape for of, shape in layers if of == number], size, model.dtype)
            for number in range(SPINE + 1, SPINE + 1 + len(layout.groups))
        ]

    def _check_fits(self, layout: CacheLayout, num_host_blocks: int) -> None:
        sizes = self._group_bytes(layout)
        spine_bytes = self._block_bytes() - sum(sizes)
        beside = sum(group.num_blocks * size for group, size in zip(layout.groups, sizes, strict=True))
        beside += self._num_scratch * self._block_bytes()
        on_host = sum(group.num_host_blocks * size for group, size in zip(layout.groups, sizes, strict=True))
        device, split = self._model.device, self._model.split
        if split is not None:  # the others of this host take as much
            num_here, of_draft = split.everyone.num_here, self._draft_block_bytes
            spine_bytes = (spine_bytes - of_draft) * num_here + of_draft
            beside, on_host = beside * num_here, on_host * num_here
        check_cache_fits(layout.num_blocks, num_host_blocks, spine_bytes, device, beside, on_host)

    def _cache_bytes(self, batch_class: type[PagedBatch]) -> int:
        device, size, need = self._model.device, self._size, self._need
        if size.gpu_utilization is None:
            if size.num_bytes is not None:
                return size.num_bytes
            split = self._model.split
            give_back(device)
            return default_cache_bytes(device) // (1 if split is None else split.everyone.num_here)
        if device.type != "cuda":
            raise ModelLoadError(
                "gpu_memory_utilization is for a GPU; kv_cache_memory sizes the cache on a CPU."
            )
        try:
            step = step_bytes(self._model, batch_class, need.block_size, need.step_tokens, self._uses.sample)
            graphs = self._uses.graphs()
        except torch.OutOfMemoryError as error:
            raise ModelLoadError(
                f"A step of {need.step_tokens} tokens does not fit into the GPU's memory beside the weights. "
                "Lower max_num_batched_tokens, or take a smaller model."
            ) from error
        give_back(device)
        free, total = torch.cuda.mem_get_info(device)
        logger.info(
            "GPU memory: %s of %s are taken, a step takes up to %s more, decode rows and graphs %s",
            *map(in_gib, (total - free, total, step, graphs)),
        )
        return gpu_cache_bytes(size.gpu_utilization, total=total, free=free, step=step, graphs=graphs)


def one_block(model: LoadedModel, block_size: int) -> KVCache:
    """A cache of one block, in memory of its own."""
    return KVCache(
        model.layer_shapes, num_blocks=1, block_size=block_size, dtype=model.dtype, device=model.device
    )
