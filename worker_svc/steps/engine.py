"""The worker's steps without a thread: applied, started, collected and committed, one after another.

Whoever drives it (a thread, or a simulation's coroutine) hands in what arrives and waits where there is something to
wait for:

    item = what arrived, else engine.author(), else what is going to arrive
    while engine.must_finish_before(item): engine.finish()
    engine.take(item)
    while engine.is_full: engine.finish()
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from signalbox.protocol.parts.disk import DiskOrders
from signalbox.protocol.step_limits import STEP_TIMEOUT_S
from signalbox.v1 import from_worker_pb2
from worker_svc.core.alone.client_orders import ClientOrders
from worker_svc.core.batch import ModelRunner
from worker_svc.core.faults.isolation import check_alive
from worker_svc.core.parts.disk import DiskPart
from worker_svc.core.requests.masks import INLINE, MaskMaker
from worker_svc.core.step import FrontendOutput, SideCopies, StepDelta
from worker_svc.core.steps_in_flight import StepsInFlight
from worker_svc.core.worker_core import WorkerCore
from worker_svc.grammar.coordinator import FirstMask, GrammarCoordinator, GrammarResult
from worker_svc.grammar.preparation import GrammarPreparation, Prepared
from worker_svc.links import delta
from worker_svc.links.handoff_columns import misfit_of_source
from worker_svc.steps.handoff_coordinator import HandoffCoordinator, HandoffListeners
from worker_svc.steps.items import (
    Announce,
    ArrivedRequest,
    ArrivedStep,
    CopiesFailed,
    FromLink,
    GiveUp,
    Item,
    Lent,
    LinkClosed,
    LinkMark,
    Ordered,
    ReadUpTo,
)
from worker_svc.steps.mask_pool import MaskWaits
from worker_svc.steps.misfit import Bounds, misfit_of_request, misfit_with
from worker_svc.steps.results import StepResult, StepTotals
from worker_svc.tracing import RunSpans
from worker_svc.transfer.control.news import Arrival, ExportKept

logger = logging.getLogger(__name__)


@dataclass
class _Times:
    """The times of a step in flight, by the engine's clock."""

    delta: StepDelta
    arrived: float
    started: float
    prepared: float
    masks_s: float
    """Seconds of its preparation in which it waited for masks."""
    limit_ms: int
    """How long it may run."""


class Copier(Protocol):
    """Makes copies beside the steps, group after group, and says itself when they have ended."""

    @property
    def age_s(self) -> float:
        """How long the oldest group has been open; 0 when none is. Any thread may ask."""

    def begin(self, copies: SideCopies) -> None:
        """Begins with a group behind everything that the runner has been given so far."""

    def wait(self) -> None:
        """Waits until all groups have ended, and that was told."""


class Disk(Protocol):
    """Carries out what steps order of the disk tier, and says itself what came of it."""

    def begin(self, orders: DiskOrders) -> None:
        """Begins behind everything that the runner has been given so far."""

    def wait(self) -> None:
        """Behind this call nothing that was ordered touches a block."""


@dataclass(frozen=True)
class Surroundings:
    """What the engine needs from whoever drives it."""

    clock: Callable[[], float]
    """A clock in seconds that only rises."""
    post: Callable[[Item], None]
    """Brings an item to the inbox. Any thread may call it."""
    copier: Copier
    disk: Disk | None = None
    """None: there is no disk tier, and orders for one are refused (PT8)."""
    masks: MaskMaker = INLINE
    """Makes the masks of outputs that follow a form."""


@dataclass(frozen=True)
class Listeners:
    """Who hears what came of steps; called by whoever drives the engine."""

    on_result: Callable[[StepResult], None]
    on_refused: Callable[[str], None]
    """A step cannot be for us: the link is to be closed."""
    on_grammar_result: Callable[[GrammarResult], None]
    on_refusal: Callable[[list[FrontendOutput]], None]
    """What frontends are told of a request that was refused when it came."""
    on_turn: Callable[[int, int], None] = lambda step_id, limit_ms: None
    """A step has become the oldest that has not ended: whatever ends the process now is its doing. It may run for
    `limit_ms`; 0: it has ended, and none runs."""
    handoffs: HandoffListeners = field(default_factory=HandoffListeners)


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
        most_tokens: int = 8192,
        step_timeout_s: float = STEP_TIMEOUT_S,
    ) -> None:
        """preparation: of the grammars; None: requests whose output has to follow a form are refused. most_tokens: that
        the runner takes in a step. step_timeout_s: the longest that a step may run for which nobody says it."""
        self._most_tokens = most_tokens
        self._limit_ms = self._timeout_ms = int(step_timeout_s * 1e3)
        """How long the last step from this link may run, and one of which that was not said."""
        self._bounds = Bounds.of(runner.info, core.table.num_slots, most_tokens)
        self._core, self._runner, self._info = core, runner, runner.info
        self._clock, self._copier = around.clock, around.copier
        self._masks = MaskWaits(around.masks, around.clock)
        core.make_masks_with(self._masks)
        self._disk = around.disk
        if around.disk is not None:
            core.parts.add(DiskPart(around.disk.begin))
        self._in_flight = StepsInFlight(core.table, runner, around.copier.begin)
        self._times: deque[_Times] = deque()
        """The times of the steps in flight, oldest first."""
        self._tell = listeners
        self._spans = spans
        self._grammars = GrammarCoordinator(core, preparation, around.post, listeners.on_grammar_result)
        self._handoffs = HandoffCoordinator(core, runner.info, preparation, around.post, listeners.handoffs)
        self._orders = ClientOrders(core.table)
        self._wishes: list[tuple[int, int]] = []
        """(slot, drafts that it wants to be allowed): while there is no scheduler, nobody else has to agree."""
        self._was_greeted = False
        self.is_alone = False
        """There is no scheduler, and steps are our own. Not while a snapshot is on its way."""
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
            if not self._in_flight or item.link.is_closed:
                return False
            return self._refusal_of(item) is not None or self._core.has_to_wait(item.delta)
        if not self._in_flight:
            return False
        return isinstance(item, Future | LinkClosed | GiveUp | CopiesFailed)

    def author(self) -> ArrivedStep | None:
        """The next step of a worker that is alone, which has to be taken; None: it is not, or nothing can run before a
        step in flight is finished, or something arrives."""
        if not self.is_alone or (
            self._in_flight and self._core.has_to_wait(StepDelta(self._core.last_step_id + 1, 0))
        ):
            return None
        authored = self._core.author(self._most_tokens)
        if authored is not None:
            authored.draft_limits, self._wishes = self._wishes, []
        return None if authored is None else ArrivedStep.own(authored, self._clock())

    # -- what the driver does --

    def take(self, item: Item) -> None:
        """Takes what arrived; no step in flight is in its way (`must_finish_before`). Raises RunnerBrokenError."""
        if isinstance(item, FromLink):
            if not item.link.is_closed:
                self._take_from_link(item)
        elif isinstance(item, Future):
            if item.set_running_or_notify_cancel():  # whoever asked may have gone
                item.set_result(self._snapshot())
        elif isinstance(item, Prepared | FirstMask):
            self._take_of_form(item)
        elif isinstance(item, Arrival):
            self._take_arrival(item)
        elif isinstance(item, Announce):
            self._grammars.announce()
        elif isinstance(item, LinkClosed):
            self._go_alone()
        elif isinstance(item, Ordered):
            self._take_orders(item)
        elif isinstance(item, GiveUp):
            self._give_up()
        elif isinstance(item, CopiesFailed):
            check_alive(self._runner, item.message)

    def _take_of_form(self, item: Prepared | FirstMask) -> None:
        if isinstance(item, FirstMask):
            self._grammars.take_mask(item)
        elif not self._handoffs.keep(item):
            self._grammars.take(item)

    def _take_from_link(self, item: FromLink) -> None:
        if isinstance(item, ArrivedStep):
            self._step(item)
        elif isinstance(item, ArrivedRequest):
            self._add(item)
        elif isinstance(item, Lent):
            self._core.loan.replace(*item.blocks)
        elif isinstance(item, ReadUpTo):
            item.link.num_taken = item.num_bytes
        else:
            self._core.greet(item.term, item.instance)
            self._orders.forget()
            self._was_greeted, self.is_alone = True, False
            self._limit_ms = self._timeout_ms

    def finish(self) -> None:
        """Collects and commits the oldest step in flight, and says what came of it. Raises RunnerBrokenError and
        UnfitError."""
        times, since, waited_s = self._times.popleft(), self._running_since, self._masks.waited_s
        step, sampled, failed = self._in_flight.collect()
        executed, masks_s = self._clock(), self._masks.waited_s - waited_s
        report, outputs = self._core.commit(step, sampled, failed)
        message = delta.build_report(report)
        done = self._clock()
        # A step that was launched ahead waited for the one before it, and has run since that was done.
        ran_from = max(times.prepared, since or 0.0)
        waited = times.started - times.arrived + ran_from - times.prepared
        message.timings.queued_us = int(waited * 1e6)
        message.timings.prepare_us = int((times.prepared - times.started - times.masks_s) * 1e6)
        message.timings.execute_us = int(max(executed - ran_from - masks_s, 0.0) * 1e6)
        message.timings.commit_us = int((done - executed) * 1e6)
        message.timings.masks_us = int((times.masks_s + masks_s) * 1e6)
        self._running_since = executed if self._in_flight else None
        is_own = times.delta.is_own
        if is_own:
            self._wishes += report.draft_limits
        self._tell.on_result(StepResult(message, outputs, is_own))
        # After the result: the scheduler hears of a request's end before a target does, which then reports a failure.
        self._handoffs.finished(report.step_id)
        self.totals.add(message.timings, is_own=is_own)
        if self._core.drafting is not None:
            self._core.drafting.take_duration(step, done - times.started - times.masks_s - masks_s)
        if self._spans:
            self._spans.stepped(times.delta, step, report, times.started, done)
        self._core.bad_streak.check()
        if self._times:
            self._tell.on_turn(self._times[0].delta.step_id, self._times[0].limit_ms)
        else:
            self._tell.on_turn(report.step_id, 0)

    def finish_all(self) -> None:
        """Finishes all steps in flight."""
        while self._in_flight:
            self.finish()

    # -- inside --

    def _refusal_of(self, arrived: ArrivedStep) -> str | None:
        """Why a step is not for us, whatever the worker holds; None: it may be."""
        return arrived.misfit(self._bounds) or self._core.refusal_of(arrived.delta)

    def _refuse(self, link: LinkMark, reason: str) -> None:
        """Leaves a link whose scheduler is not ours, or out of its mind: nothing more is taken from it."""
        link.is_closed = True
        self._tell.on_refused(reason)

    def _add(self, arrived: ArrivedRequest) -> None:
        request = arrived.message
        misfit, is_import = misfit_of_request(request, self._core.table), request.HasField("import_from")
        misfit = misfit or (misfit_of_source(request.import_from) if is_import else None)
        if misfit is not None:
            self._refuse(arrived.link, misfit)
            return
        if is_import:
            self._handoffs.begin(request)
            return
        new = delta.parse_new_request(request, self._info)
        outputs = self._core.add(new)
        if outputs:
            self._tell.on_refusal(outputs)
        if self._spans is not None:
            self._spans.added(request.slot, request.traceparent, request.tracestate, self._clock())
        self._grammars.add(new)

    def _step(self, arrived: ArrivedStep) -> None:
        refusal = self._refusal_of(arrived)
        refusal = refusal or (None if arrived.delta.is_own else self._misfit(arrived.delta))
        if refusal is not None:
            self._refuse(arrived.link, f"step {arrived.message.step_id}: {refusal}")
            return
        changes, started = arrived.delta, arrived.looked_at
        changes.is_skipped = changes.may_be_skipped and changes.step_id < arrived.link.newest_start
        self._limit_ms = arrived.message.limit_ms or self._limit_ms
        limit_ms = self._timeout_ms if changes.is_own else self._limit_ms
        if self._running_since is None:
            self._running_since = started
            self._tell.on_turn(changes.step_id, limit_ms)
        self._handoffs.leave_behind()
        waited_s = self._masks.waited_s
        step = self._core.apply(changes)
        self._grammars.forget(changes.finished_slots)
        for prepared in self._handoffs.applied(changes):
            self._grammars.take(prepared)
        if not len(step.batch.slots) and not changes.is_skipped and not self._in_flight.has_rows:
            self._core.wait_for_masks()
        self._in_flight.start(step)
        masks_s = self._masks.waited_s - waited_s
        self._times.append(_Times(changes, arrived.at, started, self._clock(), masks_s, limit_ms))

    def _misfit(self, changes: StepDelta) -> str | None:
        """Why a step does not fit what is here; None: it does."""
        return misfit_with(changes, self._core.table) or self._core.parts.misfit(changes)

    def _snapshot(self) -> from_worker_pb2.WorkerSnapshot | None:
        self.is_alone = False
        self._end_fences()  # no snapshot tells of one
        self._rest()
        return delta.build_snapshot(self._core) if self._core.last_step_id else None

    def _rest(self) -> None:
        self._core.rest()
        self._handoffs.rest()

    def _end_fences(self) -> None:
        """Nothing that was ordered beside the steps touches a block any more."""
        self._copier.wait()
        if self._disk is not None:
            self._disk.wait()

    # -- alone --

    def _go_alone(self) -> None:
        """The link is closed for good; all steps that were taken from it have been finished."""
        if not self._was_greeted:
            self._rest()
            return
        self._end_fences()
        self._rest()
        self._wishes = []
        self._core.loan.settle(self._core.table)
        self._core.solo.lift(self._core.table)
        self.is_alone = True
        self._carry_out_orders()
        self._handoffs.recall()

    def _take_arrival(self, arrival: Arrival) -> None:
        """Takes what the control streams bring. A frozen request whose tail nobody has is this worker's while it is
        alone: once it has made its snapshot, the scheduler decides (A8)."""
        if not isinstance(arrival, ExportKept):
            self._handoffs.take(arrival)
        elif self.is_alone and self._handoffs.go_on(arrival):
            self._carry_out_orders()

    def _take_orders(self, ordered: Ordered) -> None:
        for attempt, action in ordered.orders:
            self._orders.add(ordered.frontend_instance, attempt, action)
        if self.is_alone:
            self._carry_out_orders()

    def _carry_out_orders(self) -> None:
        most_rows = self._most_tokens // (1 + self._info.max_draft_tokens)
        self._grammars.forget(self._orders.carry_out(most_rows))

    def _give_up(self) -> None:
        self._grammars.forget(self._core.held_slots())
        self._core.give_up()
        self._handoffs.rest()
        self._orders.forget()
        self._was_greeted = self.is_alone = False
