"""Which states the rows of a forward read, and which they write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from worker_svc.core.batch import I32
from worker_svc.core.requests.state_versions import NOTHING
from worker_svc.runner.cuda.transfers import upload
from worker_svc.runner.recurrent.columns import StateColumns, upload_columns
from worker_svc.runner.recurrent.store import StateStore


@dataclass(frozen=True)
class StateRows:
    """R rows of a batch, in its order. No row of the store is read and written in the same forward, but for those that
    drafts go on from."""

    store: StateStore
    query_starts: I32
    """[R + 1] number of each row's first query token; last, T."""
    sources: I32
    """[R] rows of the store with the states ahead of the query tokens; NOTHING: the sequence begins."""
    targets: I32
    """[R] rows of the store for the states behind the query tokens."""
    keeps: tuple[tuple[int, int, int], ...] = ()
    """(row, end, target): the state behind the query tokens up to `end`, one of the row's, goes to that row of the
    store besides."""
    first_draft: int | None = None
    """Rows from this one on are drafts: they begin behind all others, and read what these write; None: there are
    none."""

    def __post_init__(self) -> None:
        assert len(self.sources) == len(self.targets) == len(self.query_starts) - 1
        assert (self.targets >= 0).all()
        known = self.targets[: self.first_draft]
        assert not np.isin(known, self.sources[: self.first_draft]).any(), "a state would be updated in place"
        spares = self.targets[len(known) :]
        assert not np.isin(spares, (*self.sources, *known)).any(), "a draft would be in a state"
        kept = [target for _, _, target in self.keeps]
        assert not np.isin(kept, (*self.sources, *self.targets)).any(), "a kept state would be written over"

    def advance(
        self, layer: int, run: Callable[[torch.Tensor, StateRows], torch.Tensor], hidden_states: torch.Tensor
    ) -> torch.Tensor:
        """`[1, T, H]` of the batch; the same, of what `run` makes of it."""
        return run(hidden_states, self)

    @cached_property
    def steps(self) -> I32:
        """Rows of one query token that go on from a state, and are no drafts: they run at once, ahead of all others."""
        is_step = (np.diff(self.query_starts) == 1) & (self.sources != NOTHING)
        return np.flatnonzero(is_step[: self.first_draft]).astype(np.int32)

    @cached_property
    def scans(self) -> list[tuple[int, int, int]]:
        """(row, start, end) of the other rows, with their query tokens `[start, end)`: each runs alone, without
        padding."""
        steps, starts = set(self.steps.tolist()), self.query_starts.tolist()
        return [
            (row, starts[row], starts[row + 1])
            for row in range(len(self.sources))
            if row not in steps and starts[row] < starts[row + 1]
        ]

    def parts_of(self, row: int) -> list[tuple[int, int, int]]:
        """(start, end, target) of the parts that a row is run in: all but the last end where a state is kept on its
        way, and go to that row of the store, from which the next one goes on."""
        start, end = self.query_starts[row : row + 2].tolist()
        inner = sorted((at, target) for r, at, target in self.keeps if r == row and at != end)
        ends, targets = [at for at, _ in inner] + [end], [target for _, target in inner]
        assert start < ends[0] and ends == sorted(set(ends)), "a state is kept outside of its row"
        return list(zip([start, *ends], ends, [*targets, int(self.targets[row])], strict=False))

    @cached_property
    def runs(self) -> list[tuple[I32, I32, I32]]:
        """(query_starts, sources, targets) of rows that can run at once, in order: all of them, where no state is kept
        on the way of a row and none has drafts."""
        cut = {row for row, end, _ in self.keeps if end != self.query_starts[row + 1]}
        num_rows = len(self.sources)
        first_draft = num_rows if self.first_draft is None else self.first_draft
        runs, first = [], 0
        for row in sorted({*cut, first_draft, num_rows}):
            if first < row:
                starts = self.query_starts[first : row + 1]
                runs.append((starts, self.sources[first:row], self.targets[first:row]))
            first, source = row + (row in cut), self.sources[row : row + 1]
            for start, end, target in self.parts_of(row) if row in cut else ():
                goal = np.array([target], np.int32)
                runs.append((np.array([start, end], np.int32), source, goal))
                source = goal
        return runs

    def keep_ends(self, stored: tuple[torch.Tensor, ...]) -> None:
        """Copies the states of a layer behind the last query tokens of rows, which have run, to where they are kept
        besides."""
        written, copies = self._end_keeps
        if len(copies):
            for part in stored:
                part[copies] = part[written]

    @cached_property
    def _end_keeps(self) -> tuple[torch.Tensor, torch.Tensor]:
        """[K] rows of the store that rows write, and [K] rows for copies of them."""
        ends = self.query_starts[1:]
        pairs = [(int(self.targets[row]), target) for row, end, target in self.keeps if end == ends[row]]
        written, copies = np.array(pairs, np.int32).reshape(-1, 2).T
        return self._on_device(written), self._on_device(copies)

    @cached_property
    def columns(self) -> list[StateColumns]:
        """The `runs` as kernels are told of them."""
        return upload_columns(self.runs, self.store.device)

    @cached_property
    def step_index(self) -> torch.Tensor:
        """[S] query tokens of `steps`."""
        return self._on_device(self.query_starts[:-1][self.steps])

    @cached_property
    def step_sources(self) -> torch.Tensor:
        """[S] rows of the store that `steps` read."""
        return self._on_device(self.sources[self.steps])

    @cached_property
    def step_targets(self) -> torch.Tensor:
        """[S] rows of the store that `steps` write."""
        return self._on_device(self.targets[self.steps])

    def _on_device(self, values: I32) -> torch.Tensor:
        return upload([values.astype(np.int64)], self.store.device)[0]


class DecodeStates:
    """The rows of a forward of B rows of one token, each of which goes on from a state, as a CUDA graph needs them:
    only the device knows which."""

    def __init__(self, store: StateStore, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """int64 `[B]` rows of the store that are read, and rows that are written."""
        self.store, self.step_sources, self.step_targets = store, sources, targets
        size, device = len(sources), store.device
        self.steps = np.arange(size, dtype=np.int32)
        self.step_index = torch.arange(size, device=device)
        starts = torch.arange(size + 1, dtype=torch.int32, device=device)
        self.columns = [StateColumns(starts, sources.int(), targets.int(), starts[:size])]

    def advance(
        self,
        layer: int,
        run: Callable[[torch.Tensor, DecodeStates], torch.Tensor],
        hidden_states: torch.Tensor,
    ) -> torch.Tensor:
        """`[1, B, H]` of the batch; the same, of what `run` makes of it."""
        return run(hidden_states, self)

    def keep_ends(self, stored: tuple[torch.Tensor, ...]) -> None:
        """Copies nothing: states that are kept besides are copied behind the graph."""


def scratch_rows(store: StateStore | None) -> StateRows | None:
    """A row of one token that begins, and leaves its state with the last slot, which no request has."""
    if store is None:
        return None
    last = store.rows_of(np.array([store.num_slots - 1], np.int32), np.array([0], np.int32))
    return StateRows(store, np.array([0, 1], np.int32), np.array([NOTHING], np.int32), last)
