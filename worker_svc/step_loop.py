"""The worker's step loop: a thread of its own that owns the core and the runner, so that no stream ever waits for the
model.

A step is applied, started, collected and committed. Where the runner can run ahead, the next step is started before
this one is collected, if it needs nothing of it on the host.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from signalbox.v1 import scheduler_pb2
from worker_svc import delta
from worker_svc.core.batch import ModelRunner
from worker_svc.core.isolation import check_alive
from worker_svc.core.running_step import RunningStep
from worker_svc.core.step import Failure, FrontendOutput, StepDelta, StepReport
from worker_svc.core.steps_in_flight import StepsInFlight
from worker_svc.core.worker_core import StepRefusedError, WorkerCore
from worker_svc.grammar.desk import GrammarDesk, Verdict
from worker_svc.grammar.preparation import GrammarPreparation, Prepared
from worker_svc.side_copier import SideCopier
from worker_svc.tracing import RunSpans

logger = logging.getLogger(__name__)
POLL_S = 0.0002
"""How often the loop looks whether a step is done whose runner does not tell, while it waits for the next one to
arrive."""


@dataclass
class StepResult:
    """What a step came to."""

    report: scheduler_pb2.ModelRunnerOutput
    outputs: list[FrontendOutput]


@dataclass
class StepTotals:
    """All steps since the start, for metrics."""

    num_steps: int = 0
    queued_us: int = 0
    prepare_us: int = 0
    execute_us: int = 0
    commit_us: int = 0

    def add(self, timings: scheduler_pb2.StepTimings) -> None:
        """One more step."""
        self.num_steps += 1
        self.queued_us += timings.queued_us
        self.prepare_us += timings.prepare_us
        self.execute_us += timings.execute_us
        self.commit_us += timings.commit_us


@dataclass
class _Arrived:
    """A step and when it came, on the monotonic clock."""

    message: scheduler_pb2.SchedulerOutput
    at: float


@dataclass
class _Times:
    """Of a step in flight; monotonic clock."""

    delta: StepDelta
    arrived: float
    started: float
    prepared: float


@dataclass
class _CopiesFailed:
    """Copies beside the steps went wrong."""

    message: str


class _Announce:
    """The scheduler has been greeted."""


class _Done:
    """A step in flight is done; it may have been collected meanwhile."""


_Snapshot = Future[scheduler_pb2.WorkerSnapshot | None]
_Item = (
    scheduler_pb2.NewRequestData | _Arrived | Prepared | _CopiesFailed | _Announce | _Done | _Snapshot | None
)


class StepLoop:
    """Runs steps in the order of their arrival. Callbacks are called in the step thread, `on_fence_ended` in that of
    the copies beside the steps."""

    def __init__(
        self,
        core: WorkerCore,
        runner: ModelRunner,
        on_result: Callable[[StepResult], None],
        on_refused: Callable[[str], None],
        spans: RunSpans | None = None,
        preparation: GrammarPreparation | None = None,
        on_verdict: Callable[[Verdict], None] = lambda verdict: None,
        on_fence_ended: Callable[[int, Failure | None], None] = lambda fence, failure: None,
        on_refusal: Callable[[list[FrontendOutput]], None] = lambda outputs: None,
    ) -> None:
        """preparation: of the grammars; None: requests whose output has to follow a form are refused. on_refusal: what
        frontends are to be told of a request that was refused when it came."""
        self._core, self._runner, self._info = core, runner, runner.info
        self._inbox: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._copier = SideCopier(runner, self._side_copies_ended)
        self._in_flight = StepsInFlight(core.table, runner, self._copier.begin, self._wake)
        self._times: deque[_Times] = deque()
        """Of the steps in flight, oldest first."""
        self._on_result, self._on_refused = on_result, on_refused
        self._on_fence_ended, self._on_refusal = on_fence_ended, on_refusal
        self._spans = spans
        self.totals = StepTotals()
        self._grammars = GrammarDesk(core, preparation, self._inbox.put, on_verdict)
        self._masking = ThreadPoolExecutor(1, thread_name_prefix="masks")
        self._thread = threading.Thread(target=self._run, name="step-loop", daemon=True)
        self._running_since: float | None = None
        """When the oldest step in flight was started, or became the oldest."""
        self.failure: BaseException | None = None
        """What ended the thread, if anything did: the state can be trusted no more, and the process has to end."""

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Lets the steps that have arrived run, then ends the thread."""
        self._inbox.put(None)
        self._thread.join(timeout_s)
        self._masking.shutdown(wait=False)
        self._copier.close(timeout_s)

    def put(self, message: scheduler_pb2.AttachWorkerResponse) -> None:
        """Takes what the scheduler sent. Any thread may call it."""
        now = time.monotonic()
        for request in message.new_requests:
            self._inbox.put(request)
        for step in message.steps:
            self._inbox.put(_Arrived(step, now))

    def announce(self) -> None:
        """Says once more which grammars are ready, for a scheduler that has just been greeted. Any thread."""
        self._inbox.put(_Announce())

    def snapshot(self) -> Future[scheduler_pb2.WorkerSnapshot | None]:
        """The state after all steps that have arrived; None when nothing has ever run here."""
        future: Future[scheduler_pb2.WorkerSnapshot | None] = Future()
        self._inbox.put(future)
        return future

    @property
    def step_age_s(self) -> float:
        """How long the step that runs now, or the oldest copies beside the steps, have been running; 0 when none do."""
        since = self._running_since
        age = time.monotonic() - since if since is not None else 0.0
        return max(age, self._copier.age_s)

    def _run(self) -> None:
        try:
            while (item := self._next()) is not None:
                self._take(item)
            self._finish_all()
        except BaseException as error:  # whatever it is, nobody else would end the process
            logger.exception("the step loop failed")
            self.failure = error

    def _next(self) -> _Item:
        """What comes next; the steps in flight that are done meanwhile are finished."""
        while self._in_flight:
            is_done = self._in_flight.is_done
            wait_s = None if self._in_flight.wakes else POLL_S
            try:
                return self._inbox.get(timeout=0 if is_done else wait_s)
            except queue.Empty:
                if is_done:
                    self._finish()
        return self._inbox.get()

    def _wake(self) -> None:
        """A step in flight is done. Any thread may call it."""
        self._inbox.put(_Done())

    def _take(self, item: _Item) -> None:
        if isinstance(item, _Arrived):
            self._step(item)
        elif isinstance(item, Future):
            self._finish_all()
            if item.set_running_or_notify_cancel():  # whoever asked may have gone
                item.set_result(self._snapshot())
        elif isinstance(item, Prepared):
            self._grammars.take(item)
        elif isinstance(item, _Announce):
            self._grammars.announce()
        elif isinstance(item, _CopiesFailed):
            self._finish_all()
            check_alive(self._runner, item.message)
        elif isinstance(item, _Done):
            pass  # whoever looks for the next item has seen it
        elif item is not None:
            self._add(item)

    def _add(self, request: scheduler_pb2.NewRequestData) -> None:
        if self._core.table.num_in_flight[request.slot]:
            self._finish_all()  # no scheduler of ours does that: it waits for the report of the slot's release
        new = delta.parse_new_request(request, self._info)
        outputs = self._core.add(new)
        if outputs:
            self._on_refusal(outputs)
        if self._spans is not None:
            self._spans.added(request.slot, request.traceparent, request.tracestate, time.monotonic())
        self._grammars.add(new)

    def _step(self, arrived: _Arrived) -> None:
        started = time.monotonic()
        changes = delta.parse_step(arrived.message)
        if self._in_flight and self._core.has_to_wait(changes):
            self._finish_all()
            started = time.monotonic()
        if self._running_since is None:
            self._running_since = started
        try:
            step = self._core.apply(changes)
        except StepRefusedError as error:
            self._finish_all()
            self._running_since = None
            self._on_refused(str(error))
            return
        self._grammars.forget(changes.finished_slots)
        if step.batch.masks is not None:
            step.batch.masks.fill_with(self._masking)
        self._in_flight.start(step)
        self._times.append(_Times(changes, arrived.at, started, time.monotonic()))
        while self._in_flight.is_full:
            self._finish()

    def _finish_all(self) -> None:
        while self._in_flight:
            self._finish()

    def _finish(self) -> None:
        """Collects and commits the oldest step in flight, and says what came of it."""
        times, since = self._times.popleft(), self._running_since
        step, sampled, failed = self._in_flight.collect()
        executed = time.monotonic()
        report, outputs = self._core.commit(step, sampled, failed)
        message = delta.build_report(report)
        done = time.monotonic()
        # A step that was launched ahead waited for the one before it, and has run since that was done.
        ran_from = max(times.prepared, since or 0.0)
        waited = times.started - times.arrived + ran_from - times.prepared
        message.timings.queued_us = int(waited * 1e6)
        message.timings.prepare_us = int((times.prepared - times.started) * 1e6)
        message.timings.execute_us = int((executed - ran_from) * 1e6)
        message.timings.commit_us = int((done - executed) * 1e6)
        self._running_since = executed if self._in_flight else None
        self._on_result(StepResult(message, outputs))
        self.totals.add(message.timings)
        self._observe(step, times, report, done)

    def _observe(self, step: RunningStep, times: _Times, report: StepReport, done: float) -> None:
        if self._core.drafting is not None:
            self._core.drafting.take_duration(step, done - times.started)
        if self._spans:
            self._spans.stepped(times.delta, step, report, times.started, done)

    def _side_copies_ended(self, fence: int, failure: Failure | None) -> None:
        """Called by the copying thread, so that nobody waits for the step that runs."""
        if failure is not None:
            self._inbox.put(_CopiesFailed(failure.message))
        self._on_fence_ended(fence, failure)

    def _snapshot(self) -> scheduler_pb2.WorkerSnapshot | None:
        core = self._core
        self._copier.wait()  # no snapshot tells of a fence
        core.rest()
        if not core.last_step_id:
            return None
        return delta.build_snapshot(core.table, core.held_slots(), core.scheduler_epoch, core.last_step_id)
