"""The worker's step loop: a thread of its own that owns the core and the runner, so that no stream ever waits for the
model."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from signalbox.v1 import scheduler_pb2
from worker_svc import delta
from worker_svc.core.batch import ModelRunner
from worker_svc.core.isolation import run_step
from worker_svc.core.step import FrontendOutput
from worker_svc.core.worker_core import StepRefusedError, WorkerCore
from worker_svc.grammar.desk import GrammarDesk, Verdict
from worker_svc.grammar.preparation import GrammarPreparation, Prepared
from worker_svc.tracing import RunSpans

logger = logging.getLogger(__name__)


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


class _Announce:
    """The scheduler has been greeted."""


_Snapshot = Future[scheduler_pb2.WorkerSnapshot | None]
_Item = scheduler_pb2.NewRequestData | _Arrived | Prepared | _Announce | _Snapshot | None


class StepLoop:
    """Runs steps in the order of their arrival. Callbacks are called in the step thread."""

    def __init__(
        self,
        core: WorkerCore,
        runner: ModelRunner,
        on_result: Callable[[StepResult], None],
        on_refused: Callable[[str], None],
        spans: RunSpans | None = None,
        preparation: GrammarPreparation | None = None,
        on_verdict: Callable[[Verdict], None] = lambda verdict: None,
    ) -> None:
        """preparation: of the grammars; None: requests whose output has to follow a form are refused."""
        self._core, self._runner = core, runner
        self._on_result, self._on_refused = on_result, on_refused
        self._spans = spans
        self.totals = StepTotals()
        self._inbox: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._grammars = GrammarDesk(core, preparation, self._inbox.put, on_verdict)
        self._masking = ThreadPoolExecutor(1, thread_name_prefix="masks")
        self._thread = threading.Thread(target=self._run, name="step-loop", daemon=True)
        self._running_since: float | None = None
        self.failure: Exception | None = None
        """What ended the thread, if anything did: the state can be trusted no more, and the process has to end."""

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Lets the steps that have arrived run, then ends the thread."""
        self._inbox.put(None)
        self._thread.join(timeout_s)
        self._masking.shutdown(wait=False)

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
        """How long the step that runs now has been running; 0 when none is."""
        since = self._running_since
        return time.monotonic() - since if since is not None else 0.0

    def _run(self) -> None:
        try:
            while (item := self._inbox.get()) is not None:
                self._take(item)
        except Exception as error:
            logger.exception("the step loop failed")
            self.failure = error

    def _take(self, item: _Item) -> None:
        if isinstance(item, _Arrived):
            self._step(item)
        elif isinstance(item, Future):
            if item.set_running_or_notify_cancel():  # whoever asked may have gone
                item.set_result(self._snapshot())
        elif isinstance(item, Prepared):
            self._grammars.take(item)
        elif isinstance(item, _Announce):
            self._grammars.announce()
        elif item is not None:
            self._add(item)

    def _add(self, request: scheduler_pb2.NewRequestData) -> None:
        new = delta.parse_new_request(request, self._runner.info)
        self._core.add(new)
        if self._spans is not None:
            self._spans.added(request.slot, request.traceparent, request.tracestate, time.monotonic())
        self._grammars.add(new)

    def _step(self, arrived: _Arrived) -> None:
        started = self._running_since = time.monotonic()
        try:
            changes = delta.parse_step(arrived.message)
            step = self._core.apply(changes)
        except StepRefusedError as error:
            self._running_since = None
            self._on_refused(str(error))
            return
        self._grammars.forget(changes.finished_slots)
        if step.batch.masks is not None:
            step.batch.masks.start(self._masking)
        prepared = time.monotonic()
        sampled, failed = run_step(self._runner, step.copies, step.batch)
        executed = time.monotonic()
        report, outputs = self._core.commit(step, sampled, failed)
        message = delta.build_report(report)
        done = time.monotonic()
        message.timings.queued_us = int((started - arrived.at) * 1e6)
        message.timings.prepare_us = int((prepared - started) * 1e6)
        message.timings.execute_us = int((executed - prepared) * 1e6)
        message.timings.commit_us = int((done - executed) * 1e6)
        self._running_since = None
        self._on_result(StepResult(message, outputs))
        self.totals.add(message.timings)
        if self._core.drafting is not None:
            self._core.drafting.take_duration(step, done - started)
        if self._spans:
            self._spans.stepped(changes, step, report, started, done)

    def _snapshot(self) -> scheduler_pb2.WorkerSnapshot | None:
        core = self._core
        core.rest()
        if not core.last_step_id:
            return None
        return delta.build_snapshot(core.table, core.held_slots(), core.scheduler_epoch, core.last_step_id)
