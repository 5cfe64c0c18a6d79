"""Routes a Hugging Face model's attention to the paged KV cache.

The model calls `paged_attention` in each layer, as the implementation "signalbox_paged". Which rows run, and
where their KV lies, is in the `PagedBatch` that `running` made current: some families drop keyword arguments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AttentionInterface

from signalbox.protocol.block_groups import SPINE
from signalbox.protocol.enums import BlockGroupKind
from worker_svc.runner.attention import torch_attention
from worker_svc.runner.attention.families import chunk_of, window_of
from worker_svc.runner.attention.kv_cache import KVCache, LayerCache, LayerShape
from worker_svc.runner.attention.latent import absorbed_of
from worker_svc.runner.attention.visibility import NOTES, Visibility, note_masks
from worker_svc.runner.attention.ways import AttentionRows, Way, Ways, cut_rows, whole_rows
from worker_svc.runner.cpu.native.kernels import Kernels, can_attend, load_kernels
from worker_svc.runner.errors import ModelLoadError

if TYPE_CHECKING:
    from worker_svc.core.batch import Batch
    from worker_svc.runner.recurrent.drafted import DraftedRows
    from worker_svc.runner.recurrent.rows import DecodeStates, StateRows

IMPLEMENTATION = "signalbox_paged"
SHAPE_RECORDER = "signalbox_shapes"
MASK_RECORDER = "signalbox_masks"
"""As the recorder of shapes, with masks noted."""
I32 = NDArray[np.int32]


@dataclass
class PagedBatch:
    """Where the T query tokens of a forward stand: R rows, decode rows first, as in `core.batch.Batch`, except that a
    chunk may be several."""

    cache: KVCache
    num_decode_rows: int
    query_starts: I32
    """[R + 1] number of each row's first query token; last, T."""
    positions: I32
    """[T] position of each query token in its sequence."""
    block_tables: I32
    """[R, W] block ids of each row."""
    device: torch.device
    group_tables: list[I32] = field(default_factory=list)
    """[R, W] as `block_tables`, of each group but the spine."""
    of_layers: tuple[int, ...] = ()
    """[layers] number of each layer's group; empty: all are the spine's."""
    states: StateRows | DraftedRows | DecodeStates | None = None
    """The recurrent states of the rows; None: the model has no such layers."""
    ways: Ways = field(default_factory=lambda: np.empty(0, np.uint8))
    """[R] how each row's tokens attend (`Way`); empty: what is no decode row is of a prompt."""
    layers_called: set[int] = field(default_factory=set)
    block_ids: torch.Tensor = field(init=False)
    """[T] block that each query token's KV is written to."""
    offsets: torch.Tensor = field(init=False)
    """[T] position inside that block."""
    masks: torch_attention.MaskCache = field(init=False)

    _cut: dict[int, PagedBatch] = field(init=False, default_factory=dict)
    _of_groups: dict[int, PagedBatch] = field(init=False, default_factory=dict)

    @classmethod
    def of(cls, batch: Batch, cache: KVCache, **more: Any) -> PagedBatch:
        """The query tokens of `batch`, in rows by how they attend; `more`: fields that it does not know."""
        num_prompt_tokens = batch.num_prompt_tokens[batch.slots[batch.num_decode_rows :]]
        cut = cut_rows(batch.query_starts, batch.positions, batch.num_decode_rows, num_prompt_tokens)
        if cut.rows is not None and not cls.knows_ways(cache):
            cut = AttentionRows(batch.query_starts, None, cut.ways[:0])
        rows = slice(None) if cut.rows is None else cut.rows
        return cls(
            cache=cache,
            num_decode_rows=batch.num_decode_rows,
            query_starts=cut.query_starts,
            positions=batch.positions,
            block_tables=batch.block_tables[rows],
            group_tables=[tables[rows] for tables in batch.group_tables],
            ways=cut.ways,
            **more,
        )

    @classmethod
    def knows_ways(cls, cache: KVCache) -> bool:
        """Whether tokens that were decoded once go the same way again at a price that is worth it."""
        return all(kernels_for(layer.keys, layer) is not None for layer in cache.layers)

    def __post_init__(self) -> None:
        if not len(self.ways):
            self.ways = whole_rows(self.num_rows, self.num_decode_rows)
        self.query_starts, self.positions, self.block_tables = (
            np.ascontiguousarray(column, np.int32)
            for column in (self.query_starts, self.positions, self.block_tables)
        )
        rows = np.repeat(np.arange(len(self.query_starts) - 1), np.diff(self.query_starts))
        columns, offsets = np.divmod(self.positions, self.cache.block_size)
        self.block_ids = torch.from_numpy(self.block_tables[rows, columns]).to(self.device, torch.int64)
        self.offsets = torch.from_numpy(offsets).to(self.device, torch.int64)
        self.masks = torch_attention.MaskCache(self.device)

    @property
    def num_rows(self) -> int:
        return len(self.query_starts) - 1

    def spans(self, rows: Iterable[int]) -> Iterator[tuple[int, int, int]]:
        """(row, start, end) of query tokens `[start, end)` that attend at once.

        Tokens that are no prompt do so one by one: a draft's attention is then, bit for bit, that of a decode token.
        """
        starts = self.query_starts.tolist()
        for row in rows:
            start, end = starts[row : row + 2]
            step = max(1, end - start) if self.ways[row] == Way.PROMPT else 1
            for first in range(start, end, step):
                yield row, first, first + step

    def for_layer(self, index: int) -> PagedBatch:
        """The batch as the layer finds its blocks: by the tables of its group."""
        group = self.of_layers[index] if self.of_layers else SPINE
        return self if group == SPINE else self.for_group(group)

    def for_group(self, group: int) -> PagedBatch:
        """The batch with the tables of a group but the spine."""
        if group not in self._of_groups:
            self._of_groups[group] = replace(self, block_tables=self.group_tables[group - 1], of_layers=())
        return self._of_groups[group]

    def within_chunks(self, chunk: int) -> PagedBatch:
        """A batch of the same query tokens, each of which sees what its own chunk of so many positions has ahead of it:
        a row for each chunk that a row is in, its positions and blocks counted from the chunk's first.

        `chunk` is in whole blocks. Positions are rotated already, and so only their order counts.
        """
        if not len(self.positions) or int(self.positions.max()) < chunk:
            return self
        if chunk not in self._cut:
            firsts = np.flatnonzero(self.positions % chunk == 0)
            starts = np.unique(np.concatenate((self.query_starts, firsts)))
            rows = np.searchsorted(self.query_starts, starts[:-1], side="right") - 1
            blocks = chunk // self.cache.block_size
            columns = self.positions[starts[:-1]] // chunk * blocks
            places = columns[:, None] + np.arange(min(blocks, self.block_tables.shape[1]))
            tables = self.block_tables[rows[:, None], places.clip(max=self.block_tables.shape[1] - 1)]
            self._cut[chunk] = replace(
                self,
                num_decode_rows=int((rows < self.num_decode_rows).sum()),
                ways=self.ways[rows],
                query_starts=starts,
                positions=self.positions % chunk,
                block_tables=tables,
            )
        return self._cut[chunk]

    @cached_property
    def block_table_tensor(self) -> torch.Tensor:
        """[R, W] on the device."""
        return torch.from_numpy(self.block_tables).to(self.device, torch.int64)

    @cached_property
    def position_tensor(self) -> torch.Tensor:
        """[T] position of each query token, on the device."""
        return torch.from_numpy(self.positions).to(self.device)

    def enter_layer(self, index: int) -> LayerCache:
        """The cache of layer `index`, whose attention is called now."""
        self.layers_called.add(index)
        return self.cache.layers[index]

    def write(self, layer: LayerCache, key: torch.Tensor, value: torch.Tensor) -> None:
        """Stores the query tokens' `[T, Hkv, D]` keys and values."""
        layer.write(key, value, self.block_ids, self.offsets)

    def attend_at_once(
        self, query: torch.Tensor, layer: LayerCache, scores: torch_attention.Scores
    ) -> torch.Tensor | None:
        """Attention of all rows by one kernel; None: this batch goes row by row, or by the CPU's kernels."""
        return None


_current: ContextVar[PagedBatch] = ContextVar("signalbox_paged_batch")


def current() -> PagedBatch:
    """The batch that runs in this context."""
    return _current.get()


def current_or_none() -> PagedBatch | None:
    """The batch that runs in this context; None: there is none."""
    return _current.get(None)


@contextlib.contextmanager
def running(batch: PagedBatch) -> Iterator[None]:
    """Makes `batch` the one that the model's attention layers work on."""
    token = _current.set(batch)
    try:
        yield
    finally:
        _current.reset(token)


_shapes: dict[int, LayerShape] = {}
_handed: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
"""Keys and values that layers have handed on while shapes are noted."""


_seen: dict[int, Visibility] = {}


@dataclass(frozen=True)
class Recorded:
    """Layer properties recorded during one forward pass, by layer number."""

    shapes: dict[int, LayerShape]
    """Shape of each layer's entries in the KV cache."""
    seen: dict[int, Visibility]
    """Positions that queries attend to; empty if masks were not recorded."""


@contextlib.contextmanager
def recording_layers(model: Any, *, notes_masks: bool) -> Iterator[Recorded]:
    """Lets `model` run with an attention that does nothing but note what it is called with. notes_masks: transformers
    makes masks, too; models whose code computes with them may fail."""
    _shapes.clear()
    _seen.clear()
    model.set_attn_implementation(MASK_RECORDER if notes_masks else SHAPE_RECORDER)
    try:
        yield Recorded(_shapes, _seen)
    finally:
        _handed.clear()
        NOTES.clear()
        model.set_attn_implementation(IMPLEMENTATION)


def record_shape(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *_: Any,
    sliding_window: int | None = None,
    **__: Any,
) -> tuple[torch.Tensor, None]:
    """An attention function that returns zeros; tensors as those of `paged_attention`."""
    absorbed, index = absorbed_of(module), int(module.layer_idx)  # type: ignore[arg-type]
    sees = seen_by(module, sliding_window)
    _shapes[index] = (
        LayerShape(key.shape[1], key.shape[3], value.shape[3], sees=sees, shares=giver_of(key, value, sees))
        if absorbed is None
        else absorbed.layer_shape
    )
    _handed[index] = key, value
    value_dim = value.shape[3] if absorbed is None else absorbed.value_dim
    return query.new_zeros((1, query.shape[2], query.shape[1], value_dim)), None


def record_mask(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    *rest: Any,
    sliding_window: int | None = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """An attention function that returns zeros; tensors as those of `paged_attention`."""
    _seen[int(module.layer_idx)] = Visibility(  # type: ignore[arg-type]
        sliding_window, chunk_of(module), NOTES.rule_of(attention_mask)
    )
    return record_shape(module, query, key, value, *rest, sliding_window=sliding_window, **more)


def giver_of(key: torch.Tensor, value: torch.Tensor, sees: tuple[int, int] | None) -> int | None:
    """The layer that has handed on this very key and value before, and sees as far: it has written them. None: none."""
    givers = (
        layer
        for layer, handed in _handed.items()
        if handed[0] is key and handed[1] is value and _shapes[layer].sees == sees
    )
    return next(givers, None)


def seen_by(module: torch.nn.Module, sliding_window: int | None) -> tuple[int, int] | None:
    """What a query sees, as in `LayerShape`. None, too, where the module's own word is not what it passes: fused
    modules go by that."""
    chunk = chunk_of(module)
    if chunk is not None:
        return BlockGroupKind.CHUNK, chunk
    if not sliding_window or window_of(module) != sliding_window:
        return None
    return BlockGroupKind.WINDOW, sliding_window


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
    """An attention function as transformers calls it: writes the KV of the query tokens, unless another layer has
    written it, then attends.

    `query` is `[1, Hq, T, D]`, `key` and `value` `[1, Hkv, T, D]`, roped, KV heads not repeated; of a layer with
    `AbsorbedProjections` they are what it keeps. Returns `[1, T, Hq, Dv]`. The model makes no mask for an
    implementation that it does not know.
    """
    index = int(module.layer_idx)  # type: ignore[arg-type]
    if attention_mask is not None:
        family = getattr(getattr(module, "config", None), "model_type", type(module).__name__)
        raise ModelLoadError(
            f"model_type {family!r}: the attention of layer {index} makes a mask of its own, which a paged cache does "
            "not have."
        )
    batch = current().for_layer(index)
    layer = batch.enter_layer(index)
    if batch.cache.has_own(index):
        batch.write(layer, key[0].transpose(0, 1), value[0].transpose(0, 1))
    scores = torch_attention.Scores(
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        sliding_window=sliding_window,
        softcap=softcap,
        sinks=s_aux,
        chunk=chunk_of(module),
    )
    queries, absorbed = query[0].transpose(0, 1), absorbed_of(module)
    if absorbed is None:
        return attend(queries, layer, batch, scores)[None], None
    return absorbed.outputs(attend(absorbed.queries(queries), layer, batch, scores))[None], None


def attend(
    query: torch.Tensor, layer: LayerCache, batch: PagedBatch, scores: torch_attention.Scores
) -> torch.Tensor:
    """Attention of all rows, `[T, Hq, Dv]`: by a kernel those that one takes, the others row by row."""
    if scores.chunk is not None:
        batch = batch.within_chunks(scores.chunk)
    whole = batch.attend_at_once(query, layer, scores)
    if whole is not None:
        return whole
    out = query.new_empty((query.shape[0], query.shape[1], layer.values.shape[-1]))
    for row, start, end in batch.spans(attend_by_kernel(query, layer, batch, scores, out)):
        out[start:end] = torch_attention.attend_row(
            query[start:end],
            layer,
            batch.block_table_tensor[row],
            first_position=int(batch.positions[start]),
            scores=scores,
            masks=batch.masks,
        )
    return out


def attend_by_kernel(
    query: torch.Tensor,
    layer: LayerCache,
    batch: PagedBatch,
    scores: torch_attention.Scores,
    out: torch.Tensor,
) -> Sequence[int]:
    """Writes the attention of rows to `out`. Returns those that are left: prompts, if the kernel does not know their
    way, or all without a kernel."""
    kernels = kernels_for(query, layer)
    if kernels is None:
        return range(batch.num_rows)
    prompts: list[int] = []
    if not kernels.attends_prompts(layer):
        prompts = np.flatnonzero(batch.ways == Way.PROMPT).tolist()
        if len(prompts) == batch.num_rows:
            return prompts
    kernels.attend(
        query if query.stride()[1:] == (query.shape[2], 1) else query.contiguous(),
        layer,
        out,
        query_starts=batch.query_starts,
        positions=batch.positions,
        ways=batch.ways,
        block_tables=batch.block_tables,
        scaling=scores.scaling,
        sliding_window=scores.sliding_window,
        softcap=scores.softcap,
        sinks=None if scores.sinks is None else scores.sinks.float().contiguous(),
    )
    return prompts


def kernels_for(query: torch.Tensor, layer: LayerCache) -> Kernels | None:
    """The compiled kernels, where they take the rows of this call."""
    return native_kernels() if can_attend(query, layer) else None


@cache
def native_kernels() -> Kernels | None:
    """The compiled kernels, where there is a compiler."""
    return load_kernels()


AttentionInterface.register(IMPLEMENTATION, paged_attention)
AttentionInterface.register(SHAPE_RECORDER, record_shape)
AttentionInterface.register(MASK_RECORDER, record_mask)
note_masks(MASK_RECORDER)
