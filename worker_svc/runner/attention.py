"""Routes a Hugging Face model's attention to the paged KV cache.

The model calls `paged_attention` in each layer, as the implementation "signalbox_paged". Which rows run, and
where their KV lies, is in the `PagedBatch` that `running` made current: some families drop keyword arguments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AttentionInterface

from worker_svc.runner import torch_attention
from worker_svc.runner.kv_cache import KVCache, LayerCache

try:
    from worker_svc.runner import numba_attention
except ImportError:  # numba is optional: without it every row takes the torch path
    numba_attention = None  # type: ignore[assignment]

IMPLEMENTATION = "signalbox_paged"
I32 = NDArray[np.int32]


@dataclass
class PagedBatch:
    """Where the T query tokens of a forward stand: R rows, decode rows first, as in `core.batch.Batch`."""

    cache: KVCache
    num_decode_rows: int
    query_starts: I32
    """[R + 1]"""
    positions: I32
    """[T]"""
    block_tables: I32
    """[R, W]"""
    device: torch.device
    layers_called: set[int] = field(default_factory=set)
    block_ids: torch.Tensor = field(init=False)
    """[T] block that each query token's KV is written to."""
    offsets: torch.Tensor = field(init=False)
    """[T] position inside that block."""
    block_table_tensor: torch.Tensor = field(init=False)
    """[R, W] on the device."""
    masks: torch_attention.MaskCache = field(init=False)

    def __post_init__(self) -> None:
        rows = np.repeat(np.arange(len(self.query_starts) - 1), np.diff(self.query_starts))
        columns, offsets = np.divmod(self.positions, self.cache.block_size)
        self.block_ids = torch.from_numpy(self.block_tables[rows, columns]).to(self.device, torch.int64)
        self.offsets = torch.from_numpy(offsets).to(self.device, torch.int64)
        self.block_table_tensor = torch.from_numpy(self.block_tables).to(self.device, torch.int64)
        self.masks = torch_attention.MaskCache(self.device)

    @property
    def num_rows(self) -> int:
        return len(self.query_starts) - 1


_current: ContextVar[PagedBatch] = ContextVar("signalbox_paged_batch")


@contextlib.contextmanager
def running(batch: PagedBatch) -> Iterator[None]:
    """Makes `batch` the one that the model's attention layers work on."""
    token = _current.set(batch)
    try:
        yield
    finally:
        _current.reset(token)


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """An attention function as transformers calls it: writes the KV of the query tokens, then attends.

    `query` is `[1, Hq, T, D]`, `key` and `value` `[1, Hkv, T, D]`, roped, KV heads not repeated.
    Returns `[1, T, Hq, Dv]`. The model makes no mask for an implementation that it does not know.
    """
    assert attention_mask is None
    batch = _current.get()
    layer_index = int(module.layer_idx)  # type: ignore[arg-type]
    layer = batch.cache.layers[layer_index]
    batch.layers_called.add(layer_index)
    layer.write(key[0].transpose(0, 1), value[0].transpose(0, 1), batch.block_ids, batch.offsets)
    scores = torch_attention.Scores(
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        sliding_window=sliding_window,
        softcap=softcap,
        sinks=s_aux,
    )
    return attend(query[0].transpose(0, 1), layer, batch, scores)[None], None


def attend(
    query: torch.Tensor, layer: LayerCache, batch: PagedBatch, scores: torch_attention.Scores
) -> torch.Tensor:
    """Attention of all rows, `[T, Hq, Dv]`: decode rows by the kernel if there is one, others row by row."""
    out = query.new_empty((query.shape[0], query.shape[1], layer.values.shape[-1]))
    first_row = 0
    if batch.num_decode_rows and kernel_applies(query, scores):
        first_row = batch.num_decode_rows
        numba_attention.attend_decode_rows(
            query,
            layer,
            out,
            query_starts=batch.query_starts[: first_row + 1],
            positions=batch.positions,
            block_tables=batch.block_tables,
            scores=scores,
        )
    for row in range(first_row, batch.num_rows):
        start, end = int(batch.query_starts[row]), int(batch.query_starts[row + 1])
        out[start:end] = torch_attention.attend_row(
            query[start:end],
            layer,
            batch.block_table_tensor[row],
            first_position=int(batch.positions[start]),
            scores=scores,
            masks=batch.masks,
        )
    return out


def kernel_applies(query: torch.Tensor, scores: torch_attention.Scores) -> bool:
    """True if the decode rows of this call can take the compiled kernel."""
    return numba_attention is not None and query.device.type == "cpu" and scores.is_plain


def set_threads(threads: int) -> None:
    """Threads of the compiled kernel, if there is one."""
    if numba_attention is not None:
        numba_attention.set_threads(threads)


AttentionInterface.register(IMPLEMENTATION, paged_attention)
