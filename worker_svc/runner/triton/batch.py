"""A paged batch whose attention and KV write are Triton kernels: from the host's columns, or all on the device."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from signalbox.protocol.block_groups import SPINE
from worker_svc.runner.attention.attention import PagedBatch
from worker_svc.runner.attention.kv_cache import KVCache, LayerCache
from worker_svc.runner.attention.torch_attention import Scores
from worker_svc.runner.cuda.transfers import upload
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.recurrent.rows import DecodeStates
from worker_svc.runner.triton import attention
from worker_svc.runner.triton.attention import SPLIT, AttentionWork, chunk_tile, decode_tile
from worker_svc.runner.triton.write import write_kv

I32 = NDArray[np.int32]


@dataclass
class TritonBatch(PagedBatch):
    """A batch made of numpy columns, all of whose rows go through one kernel."""

    split: int = SPLIT
    """Positions of a split of a decode row's context; a power of two."""
    _works: dict[tuple[int, int], AttentionWork] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Brings the columns to the device in one transfer that nobody waits for: the step before may still run."""
        self.query_starts, self.positions, self.block_tables = (
            np.ascontiguousarray(column, np.int32)
            for column in (self.query_starts, self.positions, self.block_tables)
        )
        rows = np.repeat(np.arange(self.num_rows), np.diff(self.query_starts))
        columns, offsets = np.divmod(self.positions, self.cache.block_size)
        block_ids = self.block_tables[rows, columns].astype(np.int64)
        self.block_ids, self.offsets, self._positions, self._block_tables = upload(
            [block_ids, offsets.astype(np.int64), self.positions, self.block_tables], self.device
        )

    @classmethod
    def knows_ways(cls, cache: KVCache) -> bool:
        """No: a chunk goes through one kernel, and products on a GPU depend on their company anyway."""
        return False

    @property
    def position_tensor(self) -> torch.Tensor:
        """[T] position of each query token, on the device."""
        return self._positions

    def within_chunks(self, chunk: int) -> PagedBatch:
        """The batch itself: the kernel knows chunks."""
        return self

    def write(self, layer: LayerCache, key: torch.Tensor, value: torch.Tensor) -> None:
        """Writes the new keys and values to the cache."""
        write_kv(layer, key, value, self.block_ids, self.offsets)

    def attend_at_once(self, query: torch.Tensor, layer: LayerCache, scores: Scores) -> torch.Tensor:
        """Attention of all rows, `[T, Hq, Dv]`."""
        group = attention.heads_per_program(query, layer)
        key = group, chunk_tile(group, latent=layer.values_in_keys)
        if key not in self._works:
            self._works[key] = self._make_work(*key)
        return attention.attend(query, layer, self._works[key], scores)

    def _make_work(self, group: int, tile: int) -> AttentionWork:
        num_decode = self.num_decode_rows
        chunks = chunk_items(self.query_starts, self.positions, num_decode, tile // group)
        decodes = decode_items(
            self.query_starts[: num_decode + 1], self.positions, decode_tile(group) // group, self.split
        )
        return AttentionWork(
            items=upload([np.concatenate([chunks, decodes])], self.device)[0],
            num_chunk_items=len(chunks),
            num_decode_tokens=int(self.query_starts[num_decode]),
            num_splits=int(decodes[:, 3].max(initial=0)) + 1,
            positions=self._positions,
            block_tables=self._block_tables,
            split=self.split,
        )


class DecodeBatch(PagedBatch):
    """B decode rows of one token each whose columns are on the device only, as a CUDA graph needs it."""

    def __init__(
        self,
        cache: KVCache,
        positions: torch.Tensor,
        block_tables: torch.Tensor,
        *,
        items: torch.Tensor,
        num_splits: int,
        of_layers: tuple[int, ...] = (),
        states: DecodeStates | None = None,
        split: int = SPLIT,
    ) -> None:
        """`positions` `[B]` and `block_tables` `[G, B, W]`, of the spine and each other group, are int32, `items` those
        of `make_decode_items`."""
        self.cache, self.layers_called, self.of_layers, self.states = cache, set(), of_layers, states
        self.num_decode_rows = len(positions)
        self.offsets = (positions % cache.block_size).to(torch.int64)
        self._columns = (positions // cache.block_size).to(torch.int64)[:, None]
        self._tables, self._of_groups = block_tables, {}
        self._work = AttentionWork(
            items=items,
            num_chunk_items=0,
            num_decode_tokens=len(positions),
            num_splits=num_splits,
            positions=positions,
            block_tables=block_tables[SPINE],
            split=split,
        )
        self.block_ids = self._written_blocks()

    def for_group(self, group: int) -> PagedBatch:
        """The batch with the tables of a group but the spine."""
        if group not in self._of_groups:
            batch = copy(self)
            batch._work = replace(self._work, block_tables=self._tables[group])
            batch.block_ids = batch._written_blocks()
            self._of_groups[group] = batch
        return self._of_groups[group]

    @property
    def position_tensor(self) -> torch.Tensor:
        """[B] position of each row, on the device."""
        return self._work.positions

    def within_chunks(self, chunk: int) -> PagedBatch:
        """The batch itself: the kernel knows chunks."""
        return self

    def _written_blocks(self) -> torch.Tensor:
        """Blocks `[B]` that the rows' KV is written to, by the tables of the work."""
        return self._work.block_tables.gather(1, self._columns)[:, 0].to(torch.int64)

    def write(self, layer: LayerCache, key: torch.Tensor, value: torch.Tensor) -> None:
        """Writes the new keys and values to the cache."""
        write_kv(layer, key, value, self.block_ids, self.offsets)

    def attend_at_once(self, query: torch.Tensor, layer: LayerCache, scores: Scores) -> torch.Tensor:
        """Attention of all rows, `[B, Hq, Dv]`."""
        return attention.attend(query, layer, self._work, scores)


def chunk_items(query_starts: I32, positions: I32, first_row: int, queries: int) -> I32:
    """[I, 4] tiles of `queries` tokens of the rows from `first_row` on; those with the longest context come first."""
    items = _tiles(query_starts[first_row:], queries)
    items[:, 0] += first_row
    ends = positions[items[:, 1]] + items[:, 2]
    return items[np.argsort(-ends, kind="stable")]


def decode_items(query_starts: I32, positions: I32, queries: int, split: int) -> I32:
    """[I, 4] tiles of the rows of `query_starts`, each as often as its context has splits."""
    tiles = _tiles(query_starts, queries)
    counts = (positions[tiles[:, 1]] + tiles[:, 2] - 1) // split + 1
    items = np.repeat(tiles, counts, axis=0)
    items[:, 3] = np.arange(len(items)) - np.repeat(np.cumsum(counts) - counts, counts)
    return items


def make_decode_items(num_rows: int, num_splits: int, device: torch.device) -> torch.Tensor:
    """[I, 4] items of `num_rows` rows of one token whose positions are not known here: all splits of each."""
    rows = np.repeat(np.arange(num_rows, dtype=np.int32), num_splits)
    splits = np.tile(np.arange(num_splits, dtype=np.int32), num_rows)
    return torch.from_numpy(np.stack([rows, rows, np.ones_like(rows), splits], axis=1)).to(device)


def _tiles(query_starts: I32, queries: int) -> I32:
    """[I, 4] row (from 0), first query token, number of tokens, 0: the tokens of each row in portions of `queries`."""
    lengths = np.diff(query_starts)
    counts = -(-lengths // queries)
    rows = np.repeat(np.arange(len(lengths), dtype=np.int32), counts)
    inside = (np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)) * queries
    tokens = np.minimum(queries, lengths[rows] - inside)
    return np.stack([rows, query_starts[rows] + inside, tokens, np.zeros_like(rows)], axis=1).astype(np.int32)


def check_usable(device: torch.device) -> None:
    """ModelLoadError unless Triton can run kernels for `device`."""
    if device.type != "cuda" and not attention.INTERPRETED:
        raise ModelLoadError(
            f"attention triton needs a CUDA device, not {device.type}: its kernels run on a CPU only in Triton's "
            "interpreter, for tests (TRITON_INTERPRET=1)."
        )
