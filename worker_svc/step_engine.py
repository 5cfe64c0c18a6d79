"""The worker's steps without a thread: applied, started, collected and committed, one after another.

Whoever drives it (a thread, or a simulation's coroutine) hands in what arrives and waits where there is something to
wait for:

    while engine.must_finish_before(item): engine.finish()
    engine.take(item)
    while engine.is_full: engine.finish()
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from signalbox.v1 import scheduler_pb2
from worker_svc import delta
from worker_svc.core.batch import ModelRunner
from worker_svc.core.isolation import check_alive
from worker_svc.core.masks import Masks
from worker_svc.core.running_step import RunningStep
from worker_svc.core.step import FrontendOutput, SideCopies, StepDelta, StepReport
from worker_svc.core.steps_in_flight import StepsInFlight
from worker_svc.core.worker_core import StepRefusedError, WorkerCore
from worker_svc.grammar.desk import GrammarDesk, Verdict
from worker_svc.grammar.preparation import GrammarPreparation, Prepared
from worker_svc.step_items import Announce, ArrivedStep, CopiesFailed, Done, Item
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
class _Times:
    """Of a step in flight; by the engine's clock."""

    delta: StepDelta
    arrived: float
    started: float
    prepared: float


class Copier(Protocol):
    """Makes copies beside the steps, group after group, and says itself when they have ended."""

    @property
    def age_s(self) -> float:
        """How long the oldest group has been open; 0 when none is. Any thread may ask."""

    def begin(self, copies: SideCopies) -> None:
        """Begins with a group behind everything that the runner has been given so far."""

    def wait(self) -> None:
        """Until all groups have ended, and that was told."""


@dataclass(frozen=True)
class Surroundings:
    """What the engine needs from whoever drives it."""

    clock: Callable[[], float]
    """Seconds that only rise."""
    post: Callable[[Item], None]
    """Brings an item to the inbox. Any thread may call it."""
    copier: Copier
    fill: Callable[[Masks], None]
    """Told of a step's masks before it starts, so that another thread may fill them."""


@dataclass(frozen=True)
class Listeners:
    """Who hears what came of steps; called by whoever drives the engine."""

    on_result: Callable[[StepResult], None]
    on_refused: Callable[[str], None]
    """A step cannot be for us: the link is to be closed."""
    on_verdict: Callable[[Verdict], None]
    on_refusal: Callable[[list[FrontendOutput]], None]
    """What frontends are told of a request that was refused when it came."""


class StepEngine:
    """Runs steps in the order of their arrival. Steps are finished by the driver: there it may have to wait."""

    def __init__(
        self,
        core: WorkerCore,
        runner: ModelRunner,
        around: Surroundings,
        listeners: Listeners,
        spans: RunSpans | None = None,
        preparation: GrammarPreparation | None = None,
    ) -> None:
        """preparation: of the grammars; None: requests whose output has to follow a form are refused."""
        self._core, self._runner, self._info = core, runner, runner.info
        self._clock, self._copier, self._fill = around.clock, around.copier, around.fill
        self._in_flight = StepsInFlight(core.table, runner, around.copier.begin, lambda: around.post(Done()))
        self._times: deque[_Times] = deque()
        """Of the steps in flight, oldest first."""
        self._tell = listeners
        self._spans = spans
        self._grammars = GrammarDesk(core, preparation, around.post, listeners.on_verdict)
        self.totals = StepTotals()
        self._running_since: float | None = None
        """When the oldest step in flight was started, or became the oldest."""

    # -- what the driver asks --

    @property
    def num_in_flight(self) -> int:
        """Steps that have been started and not finished."""
        return len(self._in_flight)

    @property
    def is_full(self) -> bool:
        """The oldest step in flight has to be finished before anything else is taken."""
        return self._in_flight.is_full

    @property
    def is_done(self) -> bool:
        """The oldest step in flight can be finished without a wait. Only while there is one."""
        return self._in_flight.is_done

    @property
    def wakes(self) -> bool:
        """`Done` is posted when the oldest step in flight is done: nobody has to ask. Only while there is one."""
        return self._in_flight.wakes

    @property
    def step_age_s(self) -> float:
        """How long the step that runs now, or the oldest copies beside the steps, have been running; 0 when none do.
        Any thread may ask."""
        since = self._running_since
        age = self._clock() - since if since is not None else 0.0
        return max(age, self._copier.age_s)

    def must_finish_before(self, item: Item) -> bool:
        """The oldest step in flight has to be finished before `item` is taken."""
        if isinstance(item, ArrivedStep):
            item.looked_at = self._clock()
            changes = item.delta
            return bool(self._in_flight) and (
                self._core.refusal_of(changes) is not None or self._core.has_to_wait(changes)
            )
        if not self._in_flight:
            return False
        if isinstance(item, scheduler_pb2.NewRequestData):
            # No scheduler of ours does that: it waits for the report of the slot's release.
            return bool(self._core.table.num_in_flight[item.slot])
        return isinstance(item, Future | CopiesFailed)

    # -- what the driver does --

    def take(self, item: Item) -> None:
        """Takes what arrived; no step in flight is in its way (`must_finish_before`). Raises RunnerBrokenError."""
        if isinstance(item, ArrivedStep):
            self._step(item)
        elif isinstance(item, scheduler_pb2.NewRequestData):
            self._add(item)
        elif isinstance(item, Future):
            if item.set_running_or_notify_cancel():  # whoever asked may have gone
                item.set_result(self._snapshot())
        elif isinstance(item, Prepared):
            self._grammars.take(item)
        elif isinstance(item, Announce):
            self._grammars.announce()
        elif isinstance(item, CopiesFailed):
            check_alive(self._runner, item.message)

    def finish(self) -> None:
        """Collects and commits the oldest step in flight, and says what came of it. Raises RunnerBrokenError."""
        times, since = self._times.popleft(), self._running_since
        step, sampled, failed = self._in_flight.collect()
        executed = self._clock()
        report, outputs = self._core.commit(step, sampled, failed)
        message = delta.build_report(report)
        done = self._clock()
        # A step that was launched ahead waited for the one before it, and has run since that was done.
        ran_from = max(times.prepared, since or 0.0)
        waited = times.started - times.arrived + ran_from - times.prepared
        message.timings.queued_us = int(waited * 1e6)
        message.timings.prepare_us = int((times.prepared - times.started) * 1e6)
        message.timings.execute_us = int((executed - ran_from) * 1e6)
        message.timings.commit_us = int((done - executed) * 1e6)
        self._running_since = executed if self._in_flight else None
        self._tell.on_result(StepResult(message, outputs))
        self.totals.add(message.timings)
        self._observe(step, times, report, done)

    def finish_all(self) -> None:
        """Finishes all steps in flight."""
        while self._in_flight:
            self.finish()

    # -- inside --

    def _add(self, request: scheduler_pb2.NewRequestData) -> None:
        new = delta.parse_new_request(request, self._info)
        outputs = self._core.add(new)
        if outputs:
            self._tell.on_refusal(outputs)
        if self._spans is not None:
            self._spans.added(request.slot, request.traceparent, request.tracestate, self._clock())
        self._grammars.add(new)

    def _step(self, arrived: ArrivedStep) -> None:
        changes, started = arrived.delta, arrived.looked_at
        if self._running_since is None:
            self._running_since = started
        try:
            step = self._core.apply(changes)
        except StepRefusedError as error:
            self._running_since = None
            self._tell.on_refused(str(error))
            return
        self._grammars.forget(changes.finished_slots)
        if step.batch.masks is not None:
            self._fill(step.batch.masks)
        self._in_flight.start(step)
        self._times.append(_Times(changes, arrived.at, started, self._clock()))

    def _observe(self, step: RunningStep, times: _Times, report: StepReport, done: float) -> None:
        if self._core.drafting is not None:
            self._core.drafting.take_duration(step, done - times.started)
        if self._spans:
            self._spans.stepped(times.delta, step, report, times.started, done)

    def _snapshot(self) -> scheduler_pb2.WorkerSnapshot | None:
        core = self._core
        self._copier.wait()  # no snapshot tells of a fence
        core.rest()
        if not core.last_step_id:
            return None
        return delta.build_snapshot(core.table, core.held_slots(), core.scheduler_epoch, core.last_step_id)
