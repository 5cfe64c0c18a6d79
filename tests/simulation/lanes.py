"""The simulated model as a pipeline that is as late as it can be: a batch runs when it is collected, on what was known
when it was launched."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.simulation.ahead import BlockOwners
from tests.simulation.vectors import PoolingSimRunner
from worker_svc.core.batch import Batch, RunnerInfo, Sampled


@dataclass(eq=False)
class Passing:
    """A batch on its way."""

    batch: Batch

    @property
    def is_done(self) -> bool:
        """Nobody is to wait in `collect` longer than there."""
        return True


class Pipeline:
    """Launches and collects for a runner; asserts that no row is in two batches, and that chunks follow each other."""

    def __init__(self, num_lanes: int, execute: Callable[[Batch], Sampled]) -> None:
        self._num_lanes, self._execute = num_lanes, execute
        self._passing: deque[Passing] = deque()
        self.num_beside = 0
        """Batches that were launched while others were on their way."""

    def launch(self, batch: Batch, in_flight: NDArray[np.bool_]) -> Passing:
        """As `AheadRunner.launch`."""
        assert len(self._passing) < self._num_lanes, "more is on its way than there are stages"
        assert not in_flight.any(), "a row needs a token that is in flight"
        for other in self._passing:
            _check_apart(other.batch, batch)
        self.num_beside += bool(self._passing)
        launched = Passing(_as_known_now(batch))
        self._passing.append(launched)
        return launched

    def collect(self, launched: Passing) -> Sampled:
        """As `AheadRunner.collect`."""
        assert self._passing.popleft() is launched, "batches are collected in order"
        return self._execute(launched.batch)

    def check_idle(self) -> None:
        """Asserts that nothing is on its way: something is run in its turn."""
        assert not self._passing, "a batch goes ahead of others"


def _check_apart(before: Batch, batch: Batch) -> None:
    """A slot is in both at most as two chunks of a prompt, the later one behind the other."""
    decodes = batch.slots[: batch.num_decode_rows]
    assert not np.isin(decodes, before.slots).any(), "a row is in two lanes"
    ends = dict(zip(before.slots.tolist(), before.seq_lens.tolist(), strict=True))
    first = batch.positions[batch.query_starts[:-1]].tolist()
    for slot, start in zip(batch.slots.tolist(), first, strict=True):
        assert ends.get(slot, start) <= start, "a chunk overtakes the one before it"


def _as_known_now(batch: Batch) -> Batch:
    return replace(
        batch,
        token_ids=batch.token_ids.copy(),
        block_tables=batch.block_tables.copy(),
        group_tables=[tables.copy() for tables in batch.group_tables],
    )


class Pipelined:
    """The face of an `AheadRunner` of several lanes, ahead of a runner in the order of its bases."""

    owners: BlockOwners | None = None
    """Checked at each launch, if there."""

    def __init__(self, info: RunnerInfo, *others: Any) -> None:
        super().__init__(info, *others)
        self.pipeline = Pipeline(info.num_lanes, super().execute)  # type: ignore[misc]

    def launch(self, batch: Batch, in_flight: NDArray[np.bool_]) -> Passing:
        """As `AheadRunner.launch`."""
        if self.owners is not None:
            self.owners.check(batch)
        return self.pipeline.launch(batch, in_flight)

    def collect(self, launched: Passing) -> Sampled:
        """As `AheadRunner.collect`."""
        return self.pipeline.collect(launched)

    def execute(self, batch: Batch) -> Sampled:
        """In turn."""
        self.pipeline.check_idle()
        return super().execute(batch)  # type: ignore[misc, no-any-return]


class PipelineSimRunner(Pipelined, PoolingSimRunner):
    """Several lanes of the simulated model."""
