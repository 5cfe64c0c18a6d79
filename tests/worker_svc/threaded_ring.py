"""A scheduler's core in the test's thread, and a worker's step loop in its own, joined by messages of the wire."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from scheduler_svc.core.state.requests.request import RequestKey
from scheduler_svc.links.codec import delta as scheduler_delta
from signalbox.v1 import from_worker_pb2, to_worker_pb2
from tests.simulation.ahead import AheadSimRunner, LaunchedSim, Mask
from tests.worker_svc.drafting.local_ring import FRONTEND, WORKER, Client, LocalRing
from worker_svc.core.batch import Batch, BlockCopy, ModelRunner, RunnerInfo, Sampled, StateCopy
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.runner.sim.failures import SimFailures
from worker_svc.runner.sim.model import SimTiming
from worker_svc.steps.loop import StepLoop, StepResult

WAIT_S = 100


class InTurn:
    """A runner as it is without its ability to run ahead."""

    def __init__(self, runner: ModelRunner) -> None:
        self.info, self._runner = runner.info, runner

    def execute(self, batch: Batch) -> Sampled:
        """As the runner does."""
        return self._runner.execute(batch)

    def check(self) -> None:
        """As the runner does."""
        self._runner.check()

    def copy_blocks(self, copies: list[BlockCopy]) -> None:
        """As the runner does."""
        self._runner.copy_blocks(copies)

    def copy_states(self, copies: list[StateCopy]) -> None:
        """As the runner does."""
        self._runner.copy_states(copies)

    def copies_aside(self, copies: list[BlockCopy]) -> Callable[[], None]:
        """As the runner does."""
        return self._runner.copies_aside(copies)


class ThreadedSimRunner(AheadSimRunner):
    """The simulated device computes in a thread of its own, as early as it can."""

    def __init__(
        self, info: RunnerInfo, timing: SimTiming | None = None, failures: SimFailures | None = None
    ) -> None:
        super().__init__(info, timing, failures)
        self._device = ThreadPoolExecutor(1)
        self._runs: dict[int, Future[Sampled]] = {}

    def launch(self, batch: Batch, in_flight: Mask) -> LaunchedSim:
        """As `AheadRunner.launch`."""
        launched = super().launch(batch, in_flight)
        self._runs[id(launched)] = self._device.submit(self._run_on_device, launched)
        return launched

    def _run_on_device(self, launched: LaunchedSim) -> Sampled:
        try:
            launched.sampled = super().run(launched)
        except BaseException:
            launched.has_failed = True
            raise
        return launched.sampled

    def run(self, launched: LaunchedSim) -> Sampled:
        """Waits for the device."""
        return self._runs.pop(id(launched)).result(WAIT_S)


class HeldDevice(ThreadedSimRunner):
    """Each launched batch waits until it may run."""

    def __init__(self, info: RunnerInfo) -> None:
        super().__init__(info)
        self.started = threading.Semaphore(0)
        self.may_run = threading.Semaphore(0)

    def _run_on_device(self, launched: LaunchedSim) -> Sampled:
        self.started.release()
        assert self.may_run.acquire(timeout=WAIT_S)
        return super()._run_on_device(launched)


class _FenceEnded(NamedTuple):
    """Copies beside the steps have ended."""

    fence: int
    failed: bool


class ThreadedRing(LocalRing):
    """`step` sends what can be sent, and takes the next report. Requests may leave in mid-flight.

    With `is_awaited` the step thread waits behind each report until the steps that follow it are sent, so that the
    same steps run ahead however slow this thread is.
    """

    def __init__(
        self,
        runner: ModelRunner,
        *,
        depth: int,
        num_seqs: int = 8,
        side_copy_blocks: int = 0,
        drafter: Drafter | None = None,
        num_drafts: int = 0,
        is_awaited: bool = False,
    ) -> None:
        super().__init__(
            runner,
            drafter,
            depth=depth,
            num_seqs=num_seqs,
            side_copy_blocks=side_copy_blocks,
            num_drafts=num_drafts,
        )
        self._results: queue.SimpleQueue[StepResult | _FenceEnded] = queue.SimpleQueue()
        self.refused: list[str] = []
        self._is_awaited, self._num_unanswered = is_awaited, 0
        self._answers = threading.Semaphore(0)
        self.loop = StepLoop(
            self.core,
            runner,
            self._report,
            self.refused.append,
            on_fence_ended=lambda fence, failure: self._results.put(_FenceEnded(fence, failure is not None)),
        )
        self.loop.start()

    def step(self) -> None:
        """One report or one end of a fence more."""
        self.send()
        self.take()

    def send(self) -> None:
        """Sends the steps that may be sent."""
        while (decision := self.scheduler.schedule(WORKER, 0.0)) is not None:
            new = [scheduler_delta.build_new_request(request, self.worker) for request in decision.placed]
            step = scheduler_delta.build_step(decision, self.scheduler.epoch)
            self.loop.put(to_worker_pb2.AttachWorkerResponse(new_requests=new, steps=[step]))
        while self._num_unanswered:
            self._num_unanswered -= 1
            self._answers.release()

    def _report(self, result: StepResult) -> None:
        self._results.put(result)
        if self._is_awaited:
            self._answers.acquire(timeout=WAIT_S)

    def take(self, timeout_s: float = WAIT_S) -> from_worker_pb2.ModelRunnerOutput | None:
        """Waits for a report, or for the end of a fence. Raises queue.Empty."""
        result = self._results.get(timeout=timeout_s)
        if isinstance(result, _FenceEnded):
            self.scheduler.fence_ended(WORKER, result.fence, failed=result.failed)
            self.scheduler.check_integrity()
            return None
        self._num_unanswered += 1
        self.scheduler.update(WORKER, scheduler_delta.parse_report(result.report), 0.0)
        self.scheduler.check_integrity()
        self._put_out(result.outputs)
        return result.report

    def leave(self, client: Client) -> None:
        """The client goes away, or its frontend has found a stop string."""
        attempt = next(number for number, other in self._clients.items() if other is client)
        self.scheduler.finish(RequestKey(FRONTEND, f"r{attempt}"), attempt)
        client.ends.append(0)

    def close(self) -> None:
        """Ends the step thread."""
        self._is_awaited = False
        self._answers.release()
        self.loop.stop(WAIT_S)
        assert self.loop.failure is None
        assert not self.refused
        self.core.table.check_integrity()
        assert not self.core.table.num_in_flight.any()
