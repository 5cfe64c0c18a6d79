"""The simulated model as a pipeline: several batches are on their way at a time, each in another stage."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker_svc.core.batch import Batch, Sampled
from worker_svc.runner.sim.model import SimRunner


@dataclass(eq=False)
class _OnItsWay:
    """A batch that was launched."""

    batch: Batch
    done_s: float
    """When it has left the last stage, by the monotonic clock."""

    @property
    def is_done(self) -> bool:
        """It has left the last stage."""
        return time.monotonic() >= self.done_s


class PipelinedSimRunner(SimRunner):
    """An `AheadRunner` of as many stages as its `info` has lanes, each of which takes as long for a batch. A batch is
    computed when it is collected: it has to be right with what was known when it was launched."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        """As for SimRunner."""
        super().__init__(*args, **settings)
        self._stages_free_s = [0.0] * self.info.num_lanes
        self._on_their_way: deque[_OnItsWay] = deque()

    def launch(self, batch: Batch, in_flight: NDArray[np.bool_]) -> _OnItsWay:
        """As `AheadRunner.launch`; nothing that a batch needs is in flight."""
        assert not in_flight.any(), "a row is in two batches"
        kept = replace(batch, token_ids=batch.token_ids.copy(), block_tables=batch.block_tables.copy())
        launched = _OnItsWay(kept, self._pass_through(batch))
        self._on_their_way.append(launched)
        return launched

    def collect(self, launched: _OnItsWay) -> Sampled:
        """As `AheadRunner.collect`."""
        assert self._on_their_way.popleft() is launched, "batches are collected in order"
        time.sleep(max(launched.done_s - time.monotonic(), 0.0))
        return self.compute(launched.batch)

    def execute(self, batch: Batch) -> Sampled:
        """In turn: nothing is on its way."""
        assert not self._on_their_way, "a batch goes ahead of others"
        time.sleep(max(self._pass_through(batch) - time.monotonic(), 0.0))
        return self.compute(batch)

    def _pass_through(self, batch: Batch) -> float:
        """When it leaves the last stage: it enters each when it has left the one before, and that is free."""
        stage_s = self._timing.seconds(batch) / len(self._stages_free_s)
        at = time.monotonic()
        for stage, free in enumerate(self._stages_free_s):
            at = self._stages_free_s[stage] = max(at, free) + stage_s
        return at
