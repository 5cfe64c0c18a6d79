"""Drafts by a smaller model with the same tokenizer, whose KV lies in the same blocks, in layers of its own.

It computes a request's known tokens when drafts are first wanted for it, and what has come since then with each
proposal: a request without drafts costs nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from worker_svc.core.batch import BlockCopy
from worker_svc.core.drafts.coverage import DraftCoverage
from worker_svc.core.drafts.drafter import I32, I64, Drafter, DraftRows
from worker_svc.runner.attention import attention
from worker_svc.runner.attention.kv_cache import KVCache, bytes_per_block
from worker_svc.runner.cpu.direct_forward import forward_of
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.loading import LoadedModel
from worker_svc.runner.model.unexpected import refusing
from worker_svc.runner.runner_info import tokenizer_fingerprint
from worker_svc.runner.sampling.sampler import argmax
from worker_svc.runner.torch_runner import TorchRunner, load_checked

SHORT_RANGE = 33
"""Up to so many tokens a row runs like a decode row: a step can have made them."""
CATCH_UP_TOKENS = 512
"""Known tokens that one step computes at most of requests that lag behind by more than a step."""


class RowRange(NamedTuple):
    """Positions `[start, end)` of the row number `row` of the rows that want drafts."""

    row: int
    start: int
    end: int


@dataclass(frozen=True)
class LoadedDraft:
    """A draft model that has been loaded and checked, without a cache."""

    model: LoadedModel
    block_size: int

    @property
    def block_bytes(self) -> int:
        """Bytes that one block takes in the draft's layers."""
        return bytes_per_block(self.model.layer_shapes, self.block_size, self.model.dtype)

    def on(self, target: TorchRunner) -> DraftModel:
        """The drafter, with its layers in the blocks of `target`."""
        return DraftModel(self, target)


def load_draft(path: Path, target: Path, *, dtype: str, device: str, block_size: int) -> LoadedDraft:
    """Loads the draft model in `path` for the model in `target`. ModelLoadError, also if their tokenizers differ."""
    if tokenizer_fingerprint(path) != tokenizer_fingerprint(target):
        raise ModelLoadError(f"draft_model {path} has another tokenizer.json than {target}.")
    with refusing(path):
        model = load_checked(path, dtype, device, block_size)
    if model.state_layout:
        raise ModelLoadError(f"draft_model {path} has recurrent layers, which a draft model cannot have.")
    return LoadedDraft(model, block_size)


class DraftModel(Drafter):
    """Proposes what the draft model finds most likely, token by token, for all rows at once."""

    def __init__(self, loaded: LoadedDraft, target: TorchRunner) -> None:
        """Takes memory for its KV in all blocks of the `target`'s cache, host tier included."""
        self._model = loaded.model
        self._batch_class = target.batch_class
        self._forward = forward_of(
            loaded.model, min(loaded.model.max_position_embeddings, target.info.max_model_len)
        )
        self._vocab_size = min(loaded.model.vocab_size, target.info.vocab_size)
        num_blocks = target.num_cache_blocks
        self.cache = KVCache(
            loaded.model.layer_shapes,
            num_blocks=num_blocks,
            block_size=loaded.block_size,
            dtype=loaded.model.dtype,
            device=loaded.model.device,
        )
        if target.info.num_host_blocks:
            self.cache.add_host_tier([target.info.num_host_blocks])
        self._coverage = DraftCoverage(num_blocks, target.info.num_host_blocks, loaded.block_size)

    @torch.inference_mode()
    def follow(self, copies: list[BlockCopy], renewed: list[int]) -> None:
        """Copies the blocks of its own layers; see `Drafter`."""
        for copy in copies:
            self.cache.copy_block(copy)
            self._coverage.copy(copy)
        self._coverage.renew(renewed)

    @torch.inference_mode()
    def propose_all(self, rows: DraftRows) -> list[I32]:
        """One forward per draft of the longest; the first one also computes the known tokens that were missing."""
        self.caught_up = False
        wanted = np.flatnonzero(self._limits(rows) > 0)
        proposed = [np.empty(0, np.int32)] * len(rows.slots)
        if not len(wanted):
            return proposed
        slots, limits = rows.slots[wanted], self._limits(rows)[wanted]
        num_tokens = rows.num_tokens[slots].astype(np.int64)
        width = -(-int((num_tokens + limits).max()) // self.cache.block_size)
        tables = np.ascontiguousarray(rows.blocks[slots, :width])
        drafts = np.zeros((len(wanted), int(limits.max())), np.int32)
        ready = self._catch_up(rows, slots, limits, tables, drafts)
        counts = np.zeros(len(wanted), np.int64)
        counts[ready] = limits[ready]
        for number in range(1, drafts.shape[1]):
            ready = ready[limits[ready] > number]
            if not len(ready):
                break
            positions = (num_tokens[ready] + number - 1).astype(np.int32)
            starts = np.arange(len(ready) + 1, dtype=np.int32)
            batch = self._batch(starts, positions, tables[ready], num_decode_rows=len(ready))
            drafts[ready, number] = self._run(batch, drafts[ready, number - 1], starts[:-1])
        for row, draft, count in zip(wanted.tolist(), drafts, counts.tolist(), strict=True):
            proposed[row] = draft[:count]
        return proposed

    @torch.inference_mode()
    def rehearse(self, query_starts: I32, positions: I32, tables: I32, num_decode_rows: int) -> None:
        """Runs rows `[R]`, with query tokens at `positions` `[T]`, that are nobody's and whose drafts nobody wants."""
        batch = self._batch(query_starts, positions, tables, num_decode_rows)
        self._run(batch, np.zeros(len(positions), np.int32), query_starts[1:] - 1)

    @property
    def block_size(self) -> int:
        """Positions of a block."""
        return self.cache.block_size

    @property
    def most_positions(self) -> int:
        """Positions of a sequence that it can draft for."""
        return self._model.max_position_embeddings

    def _limits(self, rows: DraftRows) -> I64:
        """[R] limits that the draft model's own context allows."""
        room = self.most_positions - rows.num_tokens[rows.slots].astype(np.int64) + 1
        limits: I64 = np.minimum(rows.limits, room)
        return limits

    def _catch_up(self, rows: DraftRows, slots: I64, limits: I64, tables: I32, drafts: I32) -> I64:
        """Computes known tokens that are missing, and the first draft of those rows of which none are missing then.
        Returns these rows."""
        num_tokens = rows.num_tokens[slots].astype(np.int64)
        # The last known token is computed again if need be: the first draft follows from it.
        starts = np.minimum(self._coverage.num_covered(tables), num_tokens - 1)
        self.caught_up = bool((num_tokens - starts > limits + 1).any())
        ranges = ranges_to_compute(starts, num_tokens, limits)
        order = np.array([row_range.row for row_range in ranges], np.int64)
        ends = np.array([row_range.end for row_range in ranges], np.int64)
        query_starts = np.cumsum([0, *(end - start for _, start, end in ranges)]).astype(np.int32)
        positions = np.concatenate([np.arange(start, end, dtype=np.int32) for _, start, end in ranges])
        num_short = sum(end - start <= SHORT_RANGE for _, start, end in ranges)
        batch = self._batch(query_starts, positions, tables[order], num_short)
        tokens = rows.tokens[np.repeat(slots[order], np.diff(query_starts)), positions]
        complete = ends == num_tokens[order]
        drafts[order[complete], 0] = self._run(batch, tokens, query_starts[1:][complete] - 1)
        for row, start, end in ranges:
            self._coverage.cover(tables[row], start, end)
        ready: I64 = order[complete]
        return ready

    def _batch(
        self, query_starts: I32, positions: I32, tables: I32, num_decode_rows: int
    ) -> attention.PagedBatch:
        return self._batch_class(
            cache=self.cache,
            num_decode_rows=num_decode_rows,
            query_starts=query_starts,
            positions=positions,
            block_tables=tables,
            device=self._model.device,
        )

    def _run(self, batch: attention.PagedBatch, tokens: I32, wanted: I32) -> I64:
        """Computes `tokens` `[T]`. Returns `[N]` what most likely follows the `wanted` ones `[N]`."""
        # Ids that only pad the target's vocabulary stand for no text; they must not be read outside of the embedding.
        known = np.minimum(tokens, self._model.vocab_size - 1)
        with attention.running(batch):
            logits = self._forward(
                *(self._to_device(part) for part in (known, batch.positions, wanted))
            ).logits
        if not len(wanted):
            return np.empty(0, np.int64)
        if logits.shape[1] > self._vocab_size:
            logits = logits[:, : self._vocab_size]
        tokens_after: I64 = argmax(logits)
        return tokens_after

    def _to_device(self, values: I32) -> torch.Tensor:
        return torch.from_numpy(values.astype(np.int64)).to(self._model.device)


def ranges_to_compute(starts: I64, ends: I64, limits: I64) -> list[RowRange]:
    """The known tokens `[starts, ends)` of each row, as far as this step computes them; short ones first.

    A row that lags behind by no more than a step of drafts can have made is computed whole; the others share
    CATCH_UP_TOKENS, first come, first served.
    """
    ranges, left = [], CATCH_UP_TOKENS
    rows = zip(starts.tolist(), (ends - starts).tolist(), limits.tolist(), strict=True)
    for row, (start, lag, limit) in enumerate(rows):
        length = lag
        if lag > limit + 1:
            length = min(lag, left)
            left -= length
        if length:
            ranges.append(RowRange(row, start, start + length))
    return sorted(ranges, key=lambda row_range: row_range.end - row_range.start)
