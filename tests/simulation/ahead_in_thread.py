"""The simulated model of workers that run ahead, behind a thread in which batches run as early as they can."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tests.simulation.ahead import AheadSimRunner, DeviceError, Mask
from worker_svc.core.batch import Batch, BlockCopy, RunnerInfo, Sampled
from worker_svc.runner.sim.model import SimTiming
from worker_svc.runner.threaded_runner import LaunchedBatch, ThreadedRunner

MOST_SLOTS = 1000
WAIT_S = 100


class _Model:
    """What the thread calls."""

    def __init__(self, sim: AheadSimRunner) -> None:
        self.info, self._sim = sim.info, sim
        self.losing: set[int] = set()
        """Numbers of steps that are lost the first time that they run."""

    def execute(self, batch: Batch) -> Sampled:
        """As `ModelRunner.execute`."""
        if batch.step_id in self.losing:
            self.losing.remove(batch.step_id)
            raise DeviceError("a launched batch was to be lost")
        return AheadSimRunner.execute(self._sim, batch)

    def check(self) -> None:
        """As `ModelRunner.check`."""

    def copy_blocks(self, copies: list[BlockCopy]) -> None:
        """As `ModelRunner.copy_blocks`."""
        AheadSimRunner.copy_blocks(self._sim, copies)

    def copies_aside(self, copies: list[BlockCopy]) -> Callable[[], None]:
        """As `ModelRunner.copies_aside`."""
        return AheadSimRunner.copies_aside(self._sim, copies)


class AheadSimInThread(AheadSimRunner):
    """Loses batches as `AheadSimRunner` does."""

    made: ClassVar[list[AheadSimInThread]] = []

    def __init__(self, info: RunnerInfo, timing: SimTiming | None = None) -> None:
        super().__init__(info, timing)
        self.made.append(self)
        self._model = _Model(self)
        self._thread = ThreadedRunner(self._model, MOST_SLOTS)

    @classmethod
    def close_all(cls) -> None:
        """Ends the threads."""
        while cls.made:
            cls.made.pop()._thread.close(WAIT_S)

    def launch(self, batch: Batch, in_flight: Mask) -> LaunchedBatch:  # type: ignore[override]
        """As `AheadRunner.launch`."""
        if self.owners is not None:
            self.owners.check(batch)
        self.num_ahead += int(in_flight.sum())
        self._num_launched += 1
        if self.fail_every and self._num_launched % self.fail_every == 0:
            self._model.losing.add(batch.step_id)
        return self._thread.launch(batch, in_flight)

    def collect(self, launched: LaunchedBatch) -> Sampled:  # type: ignore[override]
        """As `AheadRunner.collect`."""
        return self._thread.collect(launched)

    def execute(self, batch: Batch) -> Sampled:
        """As `ModelRunner.execute`."""
        return self._thread.execute(batch)

    def copy_blocks(self, copies: list[BlockCopy]) -> None:
        """As `ModelRunner.copy_blocks`."""
        self._thread.copy_blocks(copies)
