"""Stands between the core's hand-offs and the streams that carry them. Belongs to the step thread.

What is read or written beside the steps passes a gate per slot, which is closed before a step runs that may give the
slot's blocks away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from signalbox.protocol.enums import ReadFault
from signalbox.v1 import from_worker_pb2, to_worker_pb2, transfer_pb2, worker_pb2
from worker_svc.core.batch import RunnerInfo
from worker_svc.core.handoff.exports import Export
from worker_svc.core.handoff.imports import BadTailError, Import
from worker_svc.core.requests.automaton import Automaton
from worker_svc.core.step import Failure, NewRequest, StepDelta
from worker_svc.core.worker_core import WorkerCore
from worker_svc.grammar.preparation import GrammarPreparation, Prepared
from worker_svc.links import handoff_columns
from worker_svc.links.arrivals import BadArrivalError, parse_head, parse_tail, whole_request
from worker_svc.steps.pull_coordinator import PullCoordinator
from worker_svc.transfer.control.gate import Gate
from worker_svc.transfer.control.news import (
    Arrival,
    CaughtUp,
    ExportBegun,
    ExportGrew,
    ExportKept,
    ExportOver,
    ExportRecalled,
    HeadArrived,
    ImportBegun,
    ImportGranted,
    ImportOver,
    ImportPrepared,
    News,
    PullArrival,
    RequestArrival,
    TailArrived,
)


@dataclass(frozen=True)
class Repeated:
    """Outputs that a frontend has not acknowledged to the worker that had its request before (HO11)."""

    frontend_instance: str
    leg: int
    batches: list[worker_pb2.OutputBatch]


@dataclass(frozen=True)
class HandoffListeners:
    """Who hears of hand-offs; called in the step thread."""

    on_news: Callable[[News], None] = lambda news: None
    on_event: Callable[[from_worker_pb2.WorkerEvent], None] = lambda event: None
    """What the scheduler is told."""
    on_repeated: Callable[[Repeated], None] = lambda repeated: None


@dataclass(eq=False)
class _Coming:
    """A request on its way here."""

    found: Import
    message: to_worker_pb2.NewRequestData
    gate: Gate
    is_begun: bool = False
    head: transfer_pb2.PullHead | None = None
    is_form_ready: bool = False
    has_caught_up: bool = False
    is_ready: bool = False
    """The scheduler was told that it may be frozen where it runs."""
    tail: TailArrived | None = None


@dataclass
class _Going:
    """A slot that is read here."""

    export: Export
    gate: Gate
    has_frozen: bool = False


@dataclass
class _Granted:
    """Tables of requests on their way here, as a step leaves them that has not been committed."""

    step_id: int
    tables: list[ImportGranted] = field(default_factory=list)


class HandoffCoordinator:
    """Follows the core, and says what changes."""

    def __init__(
        self,
        core: WorkerCore,
        info: RunnerInfo,
        preparation: GrammarPreparation | None,
        post: Callable[[Arrival], None],
        listeners: HandoffListeners,
    ) -> None:
        """post: brings what was prepared to `take`, in the step thread."""
        self._core, self._info, self._preparation = core, info, preparation
        self._post, self._tell = post, listeners
        self._going: dict[int, _Going] = {}
        self._coming: dict[int, _Coming] = {}
        self._granted: deque[_Granted] = deque()
        self._pulls = PullCoordinator(1 + len(core.table.groups), listeners.on_news, listeners.on_event)
        self._kept: dict[int, Prepared] = {}
        """What came of the grammars of frozen slots."""

    # -- what the engine does --

    def begin(self, message: to_worker_pb2.NewRequestData) -> None:
        """Keeps a slot for a request that another worker has; nothing is in the way of that."""
        self._core.reserve(handoff_columns.parse_import(message))
        self._follow()
        found = self._core.handoffs.imports.by_slot[message.slot]
        gate = Gate()
        self._coming[message.slot] = _Coming(found, message, gate)
        if not self._info.kv_layout:
            self._fail(self._coming[message.slot], "this worker takes nothing over")

    def leave_behind(self) -> None:
        """Ahead of a step: what its windows have passed is read no more."""
        if self._core.table.groups:
            for slot, going in self._going.items():
                going.gate.leave_behind(self._core.handoffs.exports.first_needed(slot))

    def keep(self, prepared: Prepared) -> bool:
        """Keeps what came of a grammar while its slot is frozen; False: it is not."""
        if self._core.handoffs.exports.frozen(prepared.slot) is None:
            return False
        self._kept[prepared.slot] = prepared
        return True

    def applied(self, changes: StepDelta) -> list[Prepared]:
        """A step's delta is in the core, and nothing of it has run. Returns what was kept for slots that go on."""
        self._follow()
        self._pulls.applied(changes)
        exports = self._core.handoffs.exports
        for going in self._going.values():
            if going.export.frozen is not None and not going.has_frozen:
                going.has_frozen = True
                stretches = exports.news(going.export)
                self._tell.on_news(ExportGrew(going.export, stretches, is_frozen=True))
        self._note_grants(changes)
        for found in self._core.handoffs.take_committed():
            if found.unread:
                instance, leg = found.request.ref.frontend_instance, int(self._core.table.legs[found.slot])
                self._tell.on_repeated(Repeated(instance, leg, found.unread))
        going_on = [slot for slot in self._kept if exports.frozen(slot) is None]
        return [self._kept.pop(slot) for slot in going_on]

    def finished(self, step_id: int) -> None:
        """A step is committed, and so are all before it."""
        self._pulls.finished(step_id)
        if self._going:
            self._core.handoffs.exports.prune()
            self._follow()
        for going in self._going.values():
            if not going.has_frozen and (stretches := self._core.handoffs.exports.news(going.export)):
                self._tell.on_news(ExportGrew(going.export, stretches))
        while self._granted and self._granted[0].step_id <= step_id:
            for granted in self._granted.popleft().tables:
                if not granted.found.failure:
                    self._tell.on_news(granted)

    def rest(self) -> None:
        """The link has ended, and the core has dropped what nobody knows of any more."""
        self._granted.clear()
        self._pulls.rest()
        self._follow()

    def recall(self) -> None:
        """The worker is alone: what is frozen goes on when it is known that nobody has its tail (A8)."""
        for going in self._going.values():
            if going.export.frozen is not None:
                self._tell.on_news(ExportRecalled(going.export))

    def go_on(self, kept: ExportKept) -> bool:
        """A frozen request goes on while the worker is alone. False: it is not frozen any more."""
        has_gone_on = self._core.handoffs.exports.go_on(kept.export)
        self._follow()
        return has_gone_on

    def take(self, arrival: RequestArrival | PullArrival) -> None:
        """Takes what has come of a request on its way here, or of cached blocks; it may be gone."""
        if isinstance(arrival, PullArrival):
            self._pulls.take(arrival)
            return
        coming = self._coming.get(arrival.found.slot)
        if coming is None or coming.found is not arrival.found or coming.found.failure:
            return
        try:
            if isinstance(arrival, HeadArrived):
                self._take_head(coming, arrival.head)
            elif isinstance(arrival, CaughtUp):
                coming.has_caught_up = True
                self._say_ready(coming)
            elif isinstance(arrival, TailArrived):
                self._take_tail(coming, arrival)
            elif isinstance(arrival, ImportPrepared):
                self._take_prepared(coming, arrival)
            else:
                self._fail(coming, arrival.message, arrival.fault)
        except BadArrivalError as error:
            self._fail(coming, str(error), error.fault)
        except (BadTailError, DecodeError, ValueError) as error:
            self._fail(coming, str(error))

    # -- what goes --

    def _follow(self) -> None:
        """Closes the gates of what the core has dropped, and says what is new."""
        exports, imports = self._core.handoffs.exports.by_slot, self._core.handoffs.imports.by_slot
        for slot, going in list(self._going.items()):
            if exports.get(slot) is not going.export:
                going.gate.close()
                del self._going[slot]
                self._tell.on_news(ExportOver(going.export, "its source gives it up, or it has ended"))
        for slot, export in exports.items():
            if slot not in self._going:
                gate = Gate(1 + len(self._core.table.groups))
                self._going[slot] = _Going(export, gate)
                self._tell.on_news(ExportBegun(export, gate))
        for slot, coming in list(self._coming.items()):
            if imports.get(slot) is not coming.found:
                self._end(coming)
                del self._coming[slot]
            elif coming.found.is_started and not coming.is_begun and not coming.found.failure:
                coming.is_begun = True
                version = int(self._core.states.version[slot])
                self._tell.on_news(ImportBegun(coming.found, coming.gate, version))

    # -- what comes --

    def _note_grants(self, changes: StepDelta) -> None:
        """Blocks are written when the step has run that gives them away: they were others' until then (K2)."""
        if not self._coming:
            return
        named = {start.slot for start in changes.given_tables}
        named.update(changes.grant_slots.tolist())
        for _, slots, _ in changes.group_grants:
            named.update(slots.tolist())
        granted = _Granted(changes.step_id)
        for slot in named & self._coming.keys():
            tables = self._core.handoffs.imports.tables(slot)
            granted.tables.append(ImportGranted(self._coming[slot].found, tables))
        if granted.tables:
            self._granted.append(granted)

    def _take_head(self, coming: _Coming, head: transfer_pb2.PullHead) -> None:
        request = parse_head(coming.message, head, self._info)
        coming.head = head
        coming.is_form_ready = request.form is None
        if request.form is not None:
            self._prepare(coming, request, is_whole=False)
        self._say_ready(coming)

    def _prepare(self, coming: _Coming, request: NewRequest, *, is_whole: bool) -> None:
        assert request.form is not None
        if self._preparation is None:
            raise BadArrivalError("this worker cannot follow structured_output", ReadFault.REQUEST)

        def done(prepared: Prepared) -> None:
            self._post(ImportPrepared(coming.found, prepared, is_whole))

        self._preparation.begin(request.slot, request.ref, request.form, request.prior_output, done)

    def _say_ready(self, coming: _Coming) -> None:
        if coming.head is not None and coming.is_form_ready and coming.has_caught_up and not coming.is_ready:
            coming.is_ready = True
            self._tell.on_event(handoff_columns.build_import_ready(coming.found))

    def _take_tail(self, coming: _Coming, arrived: TailArrived) -> None:
        if coming.head is None or coming.tail is not None:
            raise BadArrivalError("its tail comes twice, or ahead of its head")
        coming.tail = arrived
        request = self._request(coming)
        if request.form is None:
            self._complete(coming, request, None)
        else:
            self._prepare(coming, request, is_whole=True)

    def _take_prepared(self, coming: _Coming, arrival: ImportPrepared) -> None:
        prepared = arrival.prepared
        if prepared.automaton is None:
            failure = prepared.failure
            message = "its form cannot be prepared" if failure is None else failure.message
            raise BadArrivalError(message, ReadFault.REQUEST)
        if arrival.is_whole:
            self._complete(coming, self._request(coming), prepared.automaton)
            return
        coming.is_form_ready = True
        self._say_ready(coming)

    def _request(self, coming: _Coming) -> NewRequest:
        """The request behind its tail."""
        assert coming.head is not None and coming.tail is not None
        return whole_request(coming.message, coming.head, coming.tail.tail, self._info)

    def _complete(self, coming: _Coming, request: NewRequest, automaton: Automaton | None) -> None:
        assert coming.tail is not None
        found, message = coming.found, coming.tail.tail
        tail = parse_tail(coming.message, request, message, self._info.block_size)
        imports = self._core.handoffs.imports
        missing = imports.missing(found, coming.tail.written, tail.num_computed)
        if missing:
            raise BadArrivalError(missing)
        self._core.take_import(found, request, tail, automaton)
        found.unread = list(message.unread)
        self._end(coming)
        self._tell.on_event(handoff_columns.build_import_ended(self._core.table, found))

    def _fail(self, coming: _Coming, reason: str, fault: ReadFault = ReadFault.PAIR) -> None:
        """The request stays where it is; its slot waits for the scheduler."""
        coming.found.failure = reason
        self._end(coming)
        failure = Failure("UnavailableError", reason[:500])
        self._tell.on_event(handoff_columns.build_import_failed(coming.found, failure, fault))

    def _end(self, coming: _Coming) -> None:
        coming.gate.close()
        if self._preparation is not None and not coming.found.is_ended:
            self._preparation.cancel(coming.found.slot)
        if coming.is_begun:
            self._tell.on_news(ImportOver(coming.found))
