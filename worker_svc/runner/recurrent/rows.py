"""Which states the rows of a forward read, and which they write."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from worker_svc.core.batch import I32, Batch
from worker_svc.core.requests.state_versions import NOTHING
from worker_svc.runner.recurrent.store import StateStore


@dataclass(frozen=True)
class StateRows:
    """R rows of a batch, in its order. No row of the store is read and written in the same forward."""

    store: StateStore
    query_starts: I32
    """[R + 1] number of each row's first query token; last, T."""
    sources: I32
    """[R] rows of the store with the states ahead of the query tokens; NOTHING: the sequence begins."""
    targets: I32
    """[R] rows of the store for the states behind the query tokens."""

    def __post_init__(self) -> None:
        assert len(self.sources) == len(self.targets) == len(self.query_starts) - 1
        assert (self.targets >= 0).all()
        assert not np.isin(self.targets, self.sources).any(), "a state would be updated in place"

    @cached_property
    def steps(self) -> I32:
        """Rows of one query token that go on from a state: they run at once."""
        is_step = (np.diff(self.query_starts) == 1) & (self.sources != NOTHING)
        return np.flatnonzero(is_step).astype(np.int32)

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
        return torch.from_numpy(values).to(self.store.device, torch.int64)


def rows_of(store: StateStore | None, batch: Batch) -> StateRows | None:
    """What the rows of a batch read and write; None without a store."""
    if store is None:
        return None
    return StateRows(
        store,
        batch.query_starts,
        store.rows_of(batch.slots, batch.state_reads),
        store.rows_of(batch.slots, batch.state_writes),
    )


def scratch_rows(store: StateStore | None) -> StateRows | None:
    """A row of one token that begins, and leaves its state with the last slot, which no request has."""
    if store is None:
        return None
    last = np.array([store.num_slots * store.num_versions - 1], np.int32)
    return StateRows(store, np.array([0, 1], np.int32), np.array([NOTHING], np.int32), last)
