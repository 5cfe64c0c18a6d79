"""The simulated model on a simulated device that works beside its host, as a GPU does: batches run in the order of
their launch, some time before they are collected, and only the device knows the tokens meanwhile."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tests.simulation.penalties import first_unseen
from tests.simulation.vectors import PoolingSimRunner
from worker_svc.core.batch import Batch, RunnerInfo, Sampled
from worker_svc.core.run_ahead import is_plain
from worker_svc.core.step import StepDelta
from worker_svc.runner.sim.failures import SimFailures
from worker_svc.runner.sim.model import SimTiming

Mask = NDArray[np.bool_]
NO_TOKEN = -1
"""Stands in a batch where a token is in flight: a device that used it would give other outputs."""


class DeviceError(Exception):
    """The simulated device was asked to fail."""


class BlockOwners:
    """Whose each block is, by the deltas alone."""

    def __init__(self, info: RunnerInfo) -> None:
        self._block_size = info.block_size
        self._slots = np.full(info.num_blocks, -1, np.int64)

    def follow(self, delta: StepDelta) -> None:
        """What a step gives away. Blocks that come with a prefix that is cached are nobody's."""
        leaving = [*delta.finished_slots, *delta.preempted_slots]
        self._slots[np.isin(self._slots, leaving)] = -1
        self._slots[delta.grant_blocks] = delta.grant_slots
        for start in (*delta.resumed, *delta.started):
            self._slots[start.blocks[start.start // self._block_size :]] = start.slot

    def give(self, slot: int, blocks: list[int]) -> None:
        """What a slot gets for what it takes over."""
        self._slots[blocks] = slot

    def check(self, batch: Batch) -> None:
        """Asserts that each row writes into blocks of its own."""
        rows = np.repeat(np.arange(len(batch.slots)), np.diff(batch.query_starts))
        written = batch.block_tables[rows, batch.positions // self._block_size]
        assert (self._slots[written] == batch.slots[rows]).all(), "a row writes into somebody else's block"


@dataclass
class LaunchedSim:
    """A batch on its way; without `sampled` it has not run yet."""

    batch: Batch
    in_flight: Mask
    sampled: Sampled | None = None
    has_failed: bool = False

    @property
    def is_done(self) -> bool:
        """Its tokens are there, or never will be."""
        return self.sampled is not None or self.has_failed


class AheadSimRunner(PoolingSimRunner):
    """An `AheadRunner` whose device is as late as it can be: a batch runs when it is collected."""

    def __init__(
        self, info: RunnerInfo, timing: SimTiming | None = None, failures: SimFailures | None = None
    ) -> None:
        super().__init__(info, timing, failures)
        self.owners: BlockOwners | None = None
        """Checked at each launch, if there."""
        self.num_ahead = 0
        """Rows that ran on a token that the host did not know."""
        self.num_decode_rows = 0
        self.fail_every = 0
        """Each launched batch of a multiple of this number is lost; 0: none is."""
        self._num_launched = 0
        self._queue: deque[LaunchedSim] = deque()
        self._newest: dict[int, tuple[int, int]] = {}
        """By slot: position and token of what was sampled last, on the device."""

    def launch(self, batch: Batch, in_flight: Mask) -> LaunchedSim:
        """As `AheadRunner.launch`."""
        assert is_plain(batch), "the device alone cannot run it"
        if self.owners is not None:
            self.owners.check(batch)
        first = batch.query_starts[:-1]
        batch = replace(batch, token_ids=batch.token_ids.copy())
        batch.token_ids[first[in_flight]] = NO_TOKEN
        launched = LaunchedSim(batch, in_flight)
        self._queue.append(launched)
        self._num_launched += 1
        return launched

    def collect(self, launched: LaunchedSim) -> Sampled:
        """As `AheadRunner.collect`."""
        assert self._queue.popleft() is launched, "batches are collected in order"
        if self.fail_every and self._num_launched % self.fail_every == 0:
            self._num_launched += 1
            raise DeviceError("a launched batch was to be lost")
        return self.run(launched)

    def run(self, launched: LaunchedSim) -> Sampled:
        """Runs a batch on the device."""
        batch, ahead = launched.batch, np.flatnonzero(launched.in_flight)
        self.num_ahead += len(ahead)
        for row in ahead.tolist():
            place = int(batch.query_starts[row])
            position, batch.token_ids[place] = self._newest[int(batch.slots[row])]
            assert position == batch.positions[place], "no batch has sampled this token"
        return self._execute(batch)

    def execute(self, batch: Batch) -> Sampled:
        """In turn: nothing is on its way."""
        assert not self._queue
        return self._execute(batch)

    def _execute(self, batch: Batch) -> Sampled:
        assert (batch.token_ids >= 0).all()
        self.num_decode_rows += batch.num_decode_rows
        sampled = super().execute(batch)
        for sample, row in enumerate(batch.sample_rows.tolist()):
            slot = int(batch.slots[row])
            if batch.sampling.adjusts[slot]:
                known = batch.tokens[slot, : batch.num_tokens[slot]].tolist()
                token = int(sampled.token_ids[sample])
                sampled.token_ids[sample] = first_unseen(token, set(known), self.info.vocab_size)
            self._newest[slot] = int(batch.seq_lens[row]), int(sampled.token_ids[sample])
        return sampled


class EarlySimRunner(AheadSimRunner):
    """An `AheadRunner` whose device is as early as it can be: a batch has run when its launch returns."""

    def launch(self, batch: Batch, in_flight: Mask) -> LaunchedSim:
        """As `AheadRunner.launch`."""
        launched = super().launch(batch, in_flight)
        launched.sampled = super().run(launched)
        return launched

    def run(self, launched: LaunchedSim) -> Sampled:
        """What it has come to."""
        assert launched.sampled is not None
        return launched.sampled
