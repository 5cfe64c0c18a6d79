"""Recurrent layers beside drafts: rows whose last tokens may turn out to be wrong, and rows that go on behind such.

A state is too large to keep one behind each draft. So what is kept of drafts is what the layer was given for them, and
the next step runs those that were right ahead of its own tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from worker_svc.core.batch import I32, Batch
from worker_svc.runner.cuda.transfers import upload
from worker_svc.runner.recurrent.rows import StateRows
from worker_svc.runner.recurrent.store import StateStore

Run = Callable[[torch.Tensor, StateRows], torch.Tensor]
"""A layer's forward `[1, T, H]`, which reads and writes the states of these rows."""


@dataclass(frozen=True)
class DraftedRows:
    """A batch's rows in the order in which recurrent layers run them: each row's tail and its known tokens; behind all
    of these the drafts of all rows, from the states that were just written on, to states that nobody reads."""

    rows: StateRows
    """What runs: R rows, and one for each of them that has drafts."""
    order: torch.Tensor
    """[T'] what runs where, by number: the batch's T query tokens, and behind them the tokens of all tails."""
    places: torch.Tensor
    """[T] where each query token runs."""
    tails: tuple[torch.Tensor, torch.Tensor]
    """[A] and [A]: row of the store, and number among its drafts, of each token of a tail."""
    drafts: tuple[torch.Tensor, torch.Tensor]
    """[D] and [D]: row of the store, and number there, for each draft."""
    draft_index: torch.Tensor
    """[D] query tokens that are drafts."""

    def advance(self, layer: int, run: Run, hidden_states: torch.Tensor) -> torch.Tensor:
        """`[1, T, H]` of the batch; the same. The layer's states move on, and what it was given for drafts is kept."""
        inputs = self.rows.store.drafts[layer]
        whole = torch.cat((hidden_states[0], inputs[self.tails]))
        out = run(whole[self.order][None], self.rows)
        inputs[self.drafts] = hidden_states[0, self.draft_index]
        return out[:, self.places]


def rows_of(store: StateStore | None, batch: Batch) -> StateRows | DraftedRows | None:
    """What the rows of a batch read and write; None without a store."""
    if store is None:
        return None
    rows = StateRows(
        store,
        batch.query_starts,
        store.rows_of(batch.slots, batch.state_reads),
        store.rows_of(batch.slots, batch.state_writes),
        tuple(
            (keep.row, keep.end, store.row_of_keep(int(batch.slots[keep.row]), keep.checkpoint))
            for keep in batch.state_keeps
        ),
    )
    has_drafts = len(batch.token_ids) > int(batch.known_lengths.sum())
    return _drafted(rows, batch) if has_drafts or batch.state_tails.any() else rows


def _drafted(rows: StateRows, batch: Batch) -> DraftedRows:
    """The rows of a batch, as they run where some have drafts or a tail."""
    store = rows.store
    starts, known, tails = batch.query_starts[:-1], batch.known_lengths, batch.state_tails
    num_drafts = batch.query_lengths - known
    total, num_tail = int(batch.query_starts[-1]), int(tails.sum())
    lengths = tails + known
    ends = np.cumsum(lengths)
    order = np.empty(int(ends[-1]), np.int64)
    order[ranges(ends - lengths, tails)] = total + np.arange(num_tail)
    order[ranges(ends - known, known)] = ranges(starts, known)
    draft_index = ranges(starts + known, num_drafts)
    order = np.concatenate((order, draft_index))
    places = np.empty(total + num_tail, np.int64)
    places[order] = np.arange(len(order))
    has = np.flatnonzero(num_drafts)
    spares = store.rows_of(batch.slots[has], (batch.state_writes[has] + 1) % store.num_versions)
    all_rows = StateRows(
        store,
        np.concatenate(([0], ends, ends[-1] + np.cumsum(num_drafts[has]))).astype(np.int32),
        np.concatenate((rows.sources, rows.targets[has])),
        np.concatenate((rows.targets, spares)),
        tuple((row, end - int(starts[row] + known[row]) + int(ends[row]), at) for row, end, at in rows.keeps),
        first_draft=len(rows.sources),
    )
    return DraftedRows(
        all_rows,
        order=_index(store, order),
        places=_index(store, places[:total]),
        tails=_numbered(store, rows.sources, tails),
        drafts=_numbered(store, rows.targets, num_drafts),
        draft_index=_index(store, draft_index),
    )


def ranges(starts: I32, lengths: I32) -> I32:
    """`starts[i], starts[i] + 1, ...`, `lengths[i]` numbers each, one behind the other."""
    total = int(lengths.sum())
    behind = np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.asarray(behind + np.repeat(starts, lengths), np.int32)


def _numbered(store: StateStore, rows: I32, counts: I32) -> tuple[torch.Tensor, torch.Tensor]:
    """Each of `rows` so many times, and numbers from 0 on for each."""
    return _index(store, np.repeat(rows, counts)), _index(store, ranges(np.zeros_like(counts), counts))


def _index(store: StateStore, values: np.ndarray) -> torch.Tensor:  # type: ignore[type-arg]
    return upload([values.astype(np.int64)], store.device)[0]
