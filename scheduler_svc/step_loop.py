"""The scheduler's one loop: something arrives, the core takes it in, every step that can be sent is sent.

Owned by the event loop; nothing here waits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable

from scheduler_svc.admin.board_snapshot import make_safe_mode
from scheduler_svc.admin.safe_mode_log import log_safe_mode
from scheduler_svc.core.explain.explanation import Explanation, explain, find_requests
from scheduler_svc.core.explain.queue_place import MAX_LOOKED_AT
from scheduler_svc.core.moves.desk import key_to_move
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.requests.evidence import Exit, Process
from scheduler_svc.core.state.requests.notices import Notice
from scheduler_svc.core.state.steps.step import StepReport
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step.report import DivergenceError
from scheduler_svc.idle_check import IdleCheck
from scheduler_svc.links.arrivals import Arrival, Arrivals, adopt, finish, send_greeting
from scheduler_svc.links.codec import delta
from scheduler_svc.links.codec.events import take_event
from scheduler_svc.links.codec.holders import parse_holders
from scheduler_svc.links.codec.messages import build_directory, build_notice
from scheduler_svc.links.directory import FrontendLink, Send, WorkerLink, close_nothing
from scheduler_svc.links.greeting import Greeting
from scheduler_svc.links.hello_numbers import HelloNumbers
from scheduler_svc.links.names import check_distinct
from scheduler_svc.links.operations import operate
from scheduler_svc.links.troubles import LinkTroubles
from scheduler_svc.tracing import QueueSpans
from signalbox.links.heartbeat import HEARTBEAT_S, Attention
from signalbox.links.outbox import MAX_BATCH_BYTES, OutboxFullError
from signalbox.protocol.enums import WorkerExit
from signalbox.telemetry.spans import OFF, Tracer
from signalbox.v1 import admin_pb2, from_frontend_pb2, from_worker_pb2, to_frontend_pb2, to_worker_pb2

logger = logging.getLogger(__name__)

MAX_EXPLAINED = 32
"""Requests that one question is answered for."""
MAX_PLACED = 128
"""Requests that are placed in one go, on all workers together: some 15 ms of work. The others follow when whatever else
is ready has had its turn (Q10)."""
MAX_IDLE_ASKED = 4
"""Idle workers that are asked, in turn, with the report of another one while requests wait."""
CallAt = Callable[[float, Callable[[], None]], object]
"""Calls back at a time of the clock."""


class StepLoop:
    """Takes messages to the core and its decisions to the links."""

    def __init__(
        self,
        core: Scheduler,
        clock: Callable[[], float],
        call_at: CallAt,
        tracer: Tracer = OFF,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` only rises; `wall_clock` is Unix time. Both in seconds."""
        self.core, self._call_at = core, call_at
        self._clock, self._wall_clock = clock, wall_clock
        self._workers: dict[str, WorkerLink] = {}
        self._frontends: dict[str, FrontendLink] = {}
        self._silence_s = core.config.worker_silence_ms / 1e3
        self.arrivals = Arrivals(lambda action: call_at(clock(), action), self._silence_s)
        self.troubles, self._hellos = LinkTroubles(), HelloNumbers()
        self.idle_check = IdleCheck(core, clock)
        self._attention = Attention()
        self._goes_on = False
        """Whether `_lose_more` is to come."""
        self._put_off: dict[str, None] = {}
        """Workers that are to get their steps a little later."""
        self._num_idle_asked = 0
        """Counts up, so that each idle worker has its turn."""
        self._num_removed = 0
        """Workers that were gone when frontends were last told."""
        self.on_report: Callable[[Worker, StepReport], None] | None = None
        """Hears of every report before the core takes it in: set while somebody watches the board."""
        self._spans = QueueSpans(tracer) if tracer.is_on else None
        if self._spans is not None:
            spans = self._spans
            core.register.on_end = lambda request: spans.ended(request, clock())

    @property
    def num_frontends(self) -> int:
        """How many frontends have a link."""
        return len(self._frontends)

    # -- workers --

    def admit(self, hello: from_worker_pb2.WorkerHello) -> None:
        """Raises DuplicateWorkerError when a name of the worker that says hello is another's (H5), and UnavailableError
        when its links have failed too often, or it has said a later hello (J12)."""
        self.troubles.check(hello.worker_id, hello.worker_instance, self._clock())
        instance = self.arrivals.instance_of(hello.worker_id)
        link, worker = self._workers.get(hello.worker_id), self.core.workers.get(hello.worker_id)
        if instance is None and link is not None and worker is not None:
            instance = link.instance if self.core.liveness.lives(worker, self._clock()) else None
        check_distinct(hello, instance, (each.process for each in self.core.workers.values()))
        self._hellos.meet(hello.worker_instance, hello.hello_number)

    def greet(self, hello: from_worker_pb2.WorkerHello) -> Greeting:
        """The first part of what a worker says of itself. Raises ValueError and DecodeError."""
        return Greeting(hello, self._wall_ms(), self.core.config.max_hello_bytes)

    def attach_worker(
        self, hello: from_worker_pb2.WorkerHello, send: Send, close: Callable[[], None] = close_nothing
    ) -> WorkerLink:
        """A worker said hello, in one part, and is taken in at once. Raises as `admit` and `take_in`."""
        self.admit(hello)
        link = finish(self.take_in(Arrival(self.greet(hello), send, close)))
        assert link is not None
        return link

    def take_in(self, arrival: Arrival) -> Generator[None, None, WorkerLink | None]:
        """Takes a worker in whose hello is whole, piece by piece. None: its stream has ended meanwhile. Raises as
        `adopt`, and TermError."""
        hello = arrival.greeting.hello
        self._meet_term(hello.scheduler_epoch, hello.scheduler_instance or hello.snapshot.scheduler_instance)
        worker = yield from adopt(self.core, arrival, self._clock, self._replace)
        return self._link_up(arrival) if worker is not None else None

    def _replace(self, worker_id: str) -> None:
        """The worker says hello: what comes on its old link counts no more."""
        replaced = self._workers.pop(worker_id, None)
        if replaced is not None:
            replaced.close()

    def _link_up(self, arrival: Arrival) -> WorkerLink | None:
        """The worker is taken in: its link begins, if its stream is still there."""
        worker_id = arrival.worker_id
        if arrival.is_over:
            self.core.detach_worker(worker_id, self._clock())
            self._advance()
            return None
        model = arrival.greeting.hello.model
        link = self._workers[worker_id] = WorkerLink(arrival.instance, model, arrival.send, arrival.close)
        try:
            send_greeting(arrival, self.core.term)
            if self._spans is not None:
                self._spans.attached(self._clock())
            self._tell_directory()
            self._advance()
        except Exception:  # the caller has no link to end
            self._forget_link(worker_id)
            raise
        return link

    def _meet_term(self, number: int, instance: str = "") -> None:
        if number and self.core.term.meet(number, instance):
            logger.info("another scheduler had term %d; ours is %d from now on", number, self.core.epoch)

    def note_trouble(self, worker_id: str, instance: str, reason: str) -> None:
        """A link of the worker failed, through no fault of the network. Again and again, and it is kept away."""
        self.troubles.note(worker_id, instance, reason, self._clock())

    def is_current(self, worker_id: str, link: WorkerLink) -> bool:
        """The worker has not said hello on another stream since."""
        return self._workers.get(worker_id) is link

    def on_worker(self, worker_id: str, message: from_worker_pb2.AttachWorkerRequest) -> None:
        """Takes reports and events; anything is a sign of life. Raises DivergenceError: the link is to be closed."""
        now = self.core.workers[worker_id].vitals.heard_at = self._clock()
        if not message.outputs and not message.events:
            return
        for output in message.outputs:
            try:
                report = delta.parse_report(output)
            except ValueError as error:
                raise DivergenceError(f"its report is broken: {error}") from None
            if self.on_report is not None:
                self.on_report(self.core.workers[worker_id], report)
            self.core.update(worker_id, report, now)
        for event in message.events:
            take_event(self.core, worker_id, event, now)
        self._advance(worker_id)
        if message.events and any(event.HasField("draining") for event in message.events):
            self._confirm_draining(worker_id, now)

    def _confirm_draining(self, worker_id: str, now: float) -> None:
        """Tells a worker that nothing new comes behind what it was sent (HO14)."""
        link = self._workers.get(worker_id)
        try:
            if link is not None:
                link.send(to_worker_pb2.AttachWorkerResponse(drains=True), now)
        except OutboxFullError:
            self._forget_link(worker_id)

    def on_worker_exit(self, process: Process, kind: WorkerExit, reason: str, step_id: int = 0) -> None:
        """The guardian of a worker says how its process has ended, and in which step; 0: not known."""
        logger.warning("worker %s %s: %s", process.worker_id, kind.name.lower(), reason)
        self.core.worker_ended(process, Exit(kind, reason, self._clock(), step_id), self._clock())
        self._advance()

    def detach_worker(self, worker_id: str, link: WorkerLink) -> None:
        """Notes that a worker's stream ended."""
        if self.is_current(worker_id, link):
            logger.warning("worker %s detached", worker_id)
            self._forget_link(worker_id)
            self._advance()

    def _forget_link(self, worker_id: str) -> None:
        """Ends a worker's link from our side, unless it has ended."""
        self._workers.pop(worker_id).close()
        self.core.detach_worker(worker_id, self._clock())

    def drain_worker(self, worker_id: str, draining: bool) -> int:
        """Places nothing more on a worker, or again; returns how many requests it holds. Raises KeyError."""
        count = self.core.drain_worker(worker_id, draining, self._clock())
        logger.info("worker %s %s, %d requests", worker_id, "drains" if draining else "is resumed", count)
        self._advance()
        return count

    def move_request(self, request_id: str, worker_id: str) -> str:
        """Hands one request over; returns the worker that has it. Raises HandoffRefusedError."""
        handoff = self.core.hand_over(key_to_move(self.core.requests, request_id), worker_id, self._clock())
        self._advance()
        return handoff.source.info.worker_id

    # -- questions --

    def explain(self, request_id: str) -> list[Explanation]:
        """Why the requests of that id run or do not, the oldest first, at most MAX_EXPLAINED."""
        found = find_requests(self.core, request_id)[:MAX_EXPLAINED]
        share = MAX_LOOKED_AT // max(len(found), 1)
        return [explain(self.core, request, self._clock(), share) for request in found]

    # -- orders to all --

    def set_safe_mode(self, level: int) -> None:
        """An operator suspends the classes below `level`. Raises ValueError when the policy knows none."""
        self.core.set_safe_mode(level, self._clock())
        logger.warning("safe mode: classes below %d are suspended by an operator", level)
        self._advance()

    def lift_safe_mode(self) -> None:
        """An operator lets all classes go on."""
        self.core.lift_safe_mode(self._clock())
        logger.warning("safe mode is lifted by an operator")
        self._advance()

    def safe_mode(self) -> admin_pb2.SafeModeStatus:
        """What safe mode suspends now."""
        return make_safe_mode(self.core, self._clock())

    # -- frontends --

    def attach_frontend(self, hello: from_frontend_pb2.FrontendHello) -> FrontendLink:
        """A frontend said hello. Raises TermError and as `HelloNumbers` and `parse_holders`, and nothing has changed
        then."""
        instance, holders = hello.frontend_instance, parse_holders(hello)
        self._hellos.meet(instance, hello.hello_number)
        if hello.scheduler_epoch > self.core.epoch or not self.core.frontends.has_met(instance):
            self._meet_term(hello.scheduler_epoch)
        replaced = self._frontends.get(instance)
        if replaced is not None:
            replaced.is_closed.set()
        link = self._frontends[instance] = FrontendLink(instance)
        link.put(self._directory(), self._clock())
        live = [(ref.request_id, ref.attempt) for ref in hello.live]
        paused = [(ref.request_id, ref.attempt) for ref in hello.paused]
        core, now = self.core, self._clock()
        core.attach_frontend(instance, live, paused, now, holders, acknowledges=hello.acknowledges)
        core.frontends.heard(instance, now)
        logger.info("frontend %s attached with %d requests", instance, len(live))
        self._advance()
        return link

    def on_frontend(self, link: FrontendLink, message: from_frontend_pb2.AttachFrontendRequest) -> None:
        """Takes what clients want, in order; anything is a sign of life."""
        if self._frontends.get(link.instance) is not link:
            return
        self.core.frontends.heard(link.instance, self._clock())
        may_freeze = bool(message.heard) and self.core.handoffs.heard(link.instance, message.heard)
        if not message.operations and not may_freeze:
            return
        for operation in message.operations:
            now = self._clock()
            submitted = operate(self.core, link.instance, operation, now, self._wall_ms())
            if submitted is not None and self._spans is not None:
                self._spans.submitted(submitted, now, self.core.num_waiting)
        self._advance()

    def _wall_ms(self) -> int:
        return int(self._wall_clock() * 1e3)

    def detach_frontend(self, link: FrontendLink) -> None:
        """Notes that a frontend's stream ended."""
        if self._frontends.get(link.instance) is link:
            logger.info("frontend %s detached", link.instance)
            del self._frontends[link.instance]
            self.core.detach_frontend(link.instance, self._clock())

    # -- out --

    def tick(self) -> None:
        """Judges who lives, lets grace times run out, and says that we live; every HEARTBEAT_S. Whoever stood still
        itself reads what has arrived first (H3)."""
        now, level = self._clock(), self.core.safe_mode.budget_level
        if self._attention.is_whole(now):
            self.core.tick(now)
            self._close_links()
            self.arrivals.end_silent(now)
            self._check_integrity(now)
        if self.core.safe_mode.budget_level != level:
            log_safe_mode(self.core.safe_mode, now)
        self._advance()
        self._beat(now)

    def _check_integrity(self, now: float) -> None:
        worker_id = self.idle_check.look(now)
        link = self._workers.get(worker_id) if worker_id is not None else None
        if worker_id is not None and link is not None:
            self.note_trouble(worker_id, link.instance, "what was known of it contradicted itself")
            self._forget_link(worker_id)

    def _beat(self, now: float) -> None:
        """Lends blocks (A3), and says something to whoever has heard nothing lately (H1)."""
        since = now - HEARTBEAT_S / 2
        self.arrivals.beat(now)
        for worker_id, link in list(self._workers.items()):
            blocks = self.core.workers[worker_id].renew_loan(now)
            try:
                if blocks is not None:
                    link.send(delta.build_loan(blocks), now)
                elif link.sent_at <= since:
                    unheard = self.core.liveness.hears_nothing_of(self.core.workers[worker_id], now)
                    link.send(to_worker_pb2.AttachWorkerResponse(hears_nothing=unheard), now)
            except OutboxFullError:
                logger.error("worker %s does not read its steps", worker_id)
                self._forget_link(worker_id)
        for frontend in [link for link in self._frontends.values() if link.sent_at <= since]:
            unheard = self.core.frontends.hears_nothing_of(frontend.instance, now, self._silence_s)
            if not frontend.put(to_frontend_pb2.AttachFrontendResponse(hears_nothing=unheard), now):
                self.detach_frontend(frontend)

    def _close_links(self) -> None:
        """Ends the links of workers that are to say hello when they come back."""
        liveness = self.core.liveness
        for sentence in [*liveness.news, *self.core.handoffs.take_news()]:
            logger.warning("%s", sentence)
        for worker_id in liveness.closing:
            if worker_id in self._workers:
                logger.warning("the link of worker %s is closed", worker_id)
                self._forget_link(worker_id)
        liveness.news, liveness.closing = [], []

    def _advance(self, concerned: str | None = None) -> None:
        """Sends every step that can be sent, then what frontends have to know. When only one worker is `concerned`,
        a few of the others are looked at, if a request waits that an idle one might take."""
        self._tell_notices()  # who may run a request that is handed over, ahead of its orders (HO10)
        if concerned is None:
            workers = self.core.standings.open_ids(self._clock())
        elif self.core.may_place:
            workers = [concerned, *self._some_idle()]
        else:
            workers = [concerned]
        self._send_all(workers)

    def _some_idle(self) -> list[str]:
        idle = self.core.standings.idle_ids()
        if len(idle) > MAX_IDLE_ASKED:
            self._num_idle_asked += MAX_IDLE_ASKED
            first = self._num_idle_asked % len(idle)
            idle = [*idle[first:], *idle[:first]][:MAX_IDLE_ASKED]
        return idle

    def _send_all(self, workers: Iterable[str]) -> None:
        """Sends the steps of these workers and of those that they pull from, then what frontends have to know."""
        self._send_steps(self.core.handoffs.pulls.with_woken(workers))
        self._tell_notices()
        if self.core.num_removed != self._num_removed:
            self._num_removed = self.core.num_removed
            self._tell_directory()
        if self.core.unaccounted.is_cut and not self._goes_on:
            self._goes_on = True
            self._call_at(self._clock(), self._lose_more)

    def _send_steps(self, workers: Iterable[str]) -> None:
        """Sends the steps of each of `workers`; those behind MAX_PLACED requests are put off."""
        room = MAX_PLACED
        for worker_id in workers:
            if worker_id not in self._workers:
                continue  # it was named twice, and dropped the first time
            if room <= 0:
                self._put_off_steps(worker_id)
                continue
            try:
                room -= self._advance_worker(worker_id, room)
            except OutboxFullError:
                logger.error("worker %s does not read its steps", worker_id)
                self._forget_link(worker_id)
            except Exception:
                # Whoever's message brought us here has nothing to do with it. The worker's snapshot puts it right.
                logger.exception("no step for worker %s; it is asked for its snapshot", worker_id)
                self.note_trouble(
                    worker_id, self._workers[worker_id].instance, "no step could be made for it"
                )
                self._forget_link(worker_id)

    def _put_off_steps(self, worker_id: str) -> None:
        if not self._put_off:
            self._call_at(self._clock(), self._go_on)
        self._put_off[worker_id] = None

    def _go_on(self) -> None:
        """It is the turn of those that were put off."""
        workers, self._put_off = list(self._put_off), {}
        self._send_all(workers)

    def _lose_more(self) -> None:
        """More requests are lost than are called so in one go."""
        self._goes_on = False
        self.core.desk.resolve_unaccounted(self._clock())
        self._advance()

    def _advance_worker(self, worker_id: str, room: int) -> int:
        """Sends the worker its next steps until `room` requests have been placed, and defers the rest. Returns how many
        requests were placed."""
        link, worker = self._workers[worker_id], self.core.workers[worker_id]
        num_placed = 0
        while (step := self.core.schedule(worker_id, now := self._clock())) is not None:
            for message in delta.build_messages(step, worker, self.core.epoch, MAX_BATCH_BYTES):
                link.send(message, now)
            if self._spans is not None:
                self._spans.stepped(worker, step, self._clock())
            num_placed += len(step.placed) + len(step.resumed)
            if num_placed >= room:
                self._put_off_steps(worker_id)
                break
        if worker.hold_until > self._clock() and link.timer is None and worker.records:
            link.timer = self._call_at(worker.hold_until, lambda: self._on_timer(worker_id, link))
        return num_placed

    def _on_timer(self, worker_id: str, link: WorkerLink) -> None:
        """A step was held back for arrivals; now is the time."""
        link.timer = None
        if self.is_current(worker_id, link):
            self._advance(worker_id)

    def _tell(self, notice: Notice) -> None:
        """Frontends without a link learn it from their next hello."""
        link = self._frontends.get(notice.frontend_instance)
        if link is not None and not link.put(build_notice(notice), self._clock()):
            self.detach_frontend(link)

    def _tell_notices(self) -> None:
        for notice in self.core.drain_notices():
            self._tell(notice)

    def _tell_directory(self) -> None:
        for link in list(self._frontends.values()):
            if not link.put(self._directory(), self._clock()):
                self.detach_frontend(link)

    def _directory(self) -> to_frontend_pb2.AttachFrontendResponse:
        workers = [(self.core.workers[worker_id], link.model) for worker_id, link in self._workers.items()]
        return build_directory(workers, self.core.term)


__all__ = ["FrontendLink", "Send", "StepLoop", "WorkerLink"]
