"""The simulated model, which takes one batch after the other, behind a thread that runs ahead."""

from __future__ import annotations

import threading

from tests.simulation.ahead import AheadSimRunner, DeviceError, Mask
from worker_svc.core.batch import Batch, RunnerInfo, Sampled
from worker_svc.runner.sim.model import SimRunner, SimTiming
from worker_svc.runner.threaded_runner import LaunchedBatch, ThreadedRunner

NUM_SLOTS = 16
WAIT_S = 100


class LosingSim(AheadSimRunner):
    """Loses some steps the first time that they run."""

    def __init__(self, info: RunnerInfo, timing: SimTiming) -> None:
        super().__init__(info, timing)
        self.losing: set[int] = set()
        """Numbers of these steps."""

    def execute(self, batch: Batch) -> Sampled:
        """As `ModelRunner.execute`."""
        if batch.step_id in self.losing:
            self.losing.remove(batch.step_id)
            raise DeviceError("a launched batch was to be lost")
        return super().execute(batch)


class SimInThread(ThreadedRunner):
    """Counts, and fails, as `AheadSimRunner` does."""

    def __init__(self, info: RunnerInfo, timing: SimTiming) -> None:
        self._sim = LosingSim(info, timing)
        super().__init__(self._sim, NUM_SLOTS)
        self.num_ahead = 0
        self.fail_every = 0
        """Each launched batch of a multiple of this number is lost; 0: none is."""
        self._num_launched = 0

    def launch(self, batch: Batch, in_flight: Mask) -> LaunchedBatch:
        """As `AheadRunner.launch`."""
        self.num_ahead += int(in_flight.sum())
        self._num_launched += 1
        if self.fail_every and self._num_launched % self.fail_every == 0:
            self._sim.losing.add(batch.step_id)
        return super().launch(batch, in_flight)

    @property
    def num_decode_rows(self) -> int:
        """That the model has run."""
        return self._sim.num_decode_rows


class HeldSim(SimRunner):
    """Each batch waits until it may run."""

    def __init__(self, info: RunnerInfo) -> None:
        super().__init__(info)
        self.started = threading.Semaphore(0)
        self.may_run = threading.Semaphore(0)
        self.threads: set[int] = set()
        """That have called it."""

    def execute(self, batch: Batch) -> Sampled:
        """As `ModelRunner.execute`."""
        self.threads.add(threading.get_ident())
        self.started.release()
        assert self.may_run.acquire(timeout=WAIT_S)
        return super().execute(batch)

    def check(self) -> None:
        """As `ModelRunner.check`."""
        self.threads.add(threading.get_ident())
