"""The scheduler's one loop: something arrives, the core takes it in, every step that can be sent is sent.

Owned by the event loop; nothing here waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from scheduler_svc import delta
from scheduler_svc.board_snapshot import make_safe_mode
from scheduler_svc.core.explain.explanation import Explanation, explain, find_requests
from scheduler_svc.core.explain.queue_place import MAX_LOOKED_AT
from scheduler_svc.core.notices import Lost, Notice, Placed
from scheduler_svc.core.request import Request, RequestKey
from scheduler_svc.core.scheduler import DivergenceError, Scheduler
from scheduler_svc.core.step import StepReport
from scheduler_svc.core.worker import Worker
from scheduler_svc.tracing import QueueSpans
from signalbox.outbox import MAX_BATCH_BYTES, Outbox, OutboxFullError
from signalbox.telemetry import OFF, Tracer
from signalbox.v1 import scheduler_pb2

logger = logging.getLogger(__name__)

MAX_OUTBOX = 100_000
MAX_EXPLAINED = 32
"""Requests that one question is answered for."""
CallAt = Callable[[float, Callable[[], None]], object]
"""Calls back at a time of the clock."""
Send = Callable[[scheduler_pb2.AttachWorkerResponse], None]
"""Takes a message for a worker on its way. Raises OutboxFullError when too many wait."""


class WorkerLink:
    """The way to one worker: a stream of its own, or its part of a relay's."""

    def __init__(self, model: scheduler_pb2.ModelEntry, send: Send) -> None:
        self.model = model
        self.send = send
        self.timer: object | None = None
        """Set while a step is held back."""


class FrontendLink:
    """The stream of one frontend."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.outbox: Outbox[scheduler_pb2.AttachFrontendResponse] = Outbox(MAX_OUTBOX)
        self.is_closed = asyncio.Event()
        """Set when the frontend does not read: the stream is to end."""

    def put(self, message: scheduler_pb2.AttachFrontendResponse) -> bool:
        """Sends a message. False: too many wait, and the link is closed."""
        try:
            self.outbox.put(message)
        except OutboxFullError:
            logger.error("frontend %s does not read its messages", self.instance)
            self.is_closed.set()
        return not self.is_closed.is_set()


class StepLoop:
    """Takes messages to the core and its decisions to the links."""

    def __init__(
        self, core: Scheduler, clock: Callable[[], float], call_at: CallAt, tracer: Tracer = OFF
    ) -> None:
        self.core = core
        self._clock = clock
        self._call_at = call_at
        self._workers: dict[str, WorkerLink] = {}
        self._frontends: dict[str, FrontendLink] = {}
        self.on_report: Callable[[Worker, StepReport], None] | None = None
        """Hears of every report before the core takes it in: set while somebody watches the board."""
        self._spans = QueueSpans(tracer) if tracer.is_on else None
        if self._spans is not None:
            core.register.on_end = self._on_end

    @property
    def num_frontends(self) -> int:
        """Frontends with a link."""
        return len(self._frontends)

    # -- workers --

    def attach_worker(self, hello: scheduler_pb2.WorkerHello, send: Send) -> WorkerLink:
        """A worker said hello. Raises ValueError when its offer contradicts our settings."""
        info, snapshot = delta.parse_hello(hello)
        self.core.attach_worker(info, snapshot, self._clock())
        link = self._workers[info.worker_id] = WorkerLink(hello.model, send)
        held = len(snapshot.slots) if snapshot else 0
        logger.info("worker %s attached: %d blocks, %d slots held", info.worker_id, info.num_blocks, held)
        try:
            if self._spans is not None:
                self._spans.attached(self._clock())
            self._tell_directory()
            self._advance()
        except Exception:  # the caller has no link to end
            self._forget_link(info.worker_id)
            raise
        return link

    def is_current(self, worker_id: str, link: WorkerLink) -> bool:
        """The worker has not said hello on another stream since."""
        return self._workers.get(worker_id) is link

    def on_worker(self, worker_id: str, message: scheduler_pb2.AttachWorkerRequest) -> None:
        """Takes reports and events. Raises DivergenceError: the link is to be closed."""
        for output in message.outputs:
            report = delta.parse_report(output)
            if self.on_report is not None:
                self.on_report(self.core.workers[worker_id], report)
            self.core.update(worker_id, report, self._clock())
        for event in message.events:
            kind = event.WhichOneof("event")
            if kind == "grammar_ready":
                ready = event.grammar_ready
                self.core.grammar_ready(worker_id, ready.slot, ready.ref.request_id, ready.ref.attempt)
            elif kind == "grammar_failed":
                failed = event.grammar_failed
                self.core.grammar_failed(worker_id, failed.slot, failed.ref.request_id, failed.ref.attempt)
            elif kind == "fence_ended":
                ended = event.fence_ended
                if ended.HasField("error"):
                    logger.error("copies of worker %s failed: %s", worker_id, ended.error.message)
                self.core.fence_ended(worker_id, ended.fence, failed=ended.HasField("error"))
            elif kind == "frontend_lost":
                logger.warning(
                    "worker %s gave up frontend %s", worker_id, event.frontend_lost.frontend_instance
                )
                self.core.lose_frontend(event.frontend_lost.frontend_instance, worker_id)
            elif kind == "draining":
                self.drain_worker(worker_id, draining=True)
        self._advance(worker_id)

    def detach_worker(self, worker_id: str, link: WorkerLink) -> None:
        """The worker's stream ended."""
        if self.is_current(worker_id, link):
            logger.warning("worker %s detached", worker_id)
            self._forget_link(worker_id)
            self._advance()

    def _forget_link(self, worker_id: str) -> None:
        del self._workers[worker_id]
        self.core.detach_worker(worker_id, self._clock())

    def drain_worker(self, worker_id: str, draining: bool) -> int:
        """Places nothing more on a worker, or again; returns how many requests it holds. Raises KeyError."""
        count = self.core.drain_worker(worker_id, draining, self._clock())
        logger.info("worker %s %s, %d requests", worker_id, "drains" if draining else "is resumed", count)
        self._advance()
        return count

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

    def safe_mode(self) -> scheduler_pb2.SafeModeStatus:
        """What is suspended now."""
        return make_safe_mode(self.core, self._clock())

    # -- frontends --

    def attach_frontend(self, hello: scheduler_pb2.FrontendHello) -> FrontendLink:
        """A frontend said hello."""
        instance = hello.frontend_instance
        link = self._frontends[instance] = FrontendLink(instance)
        link.outbox.put(self._directory())
        live = [(ref.request_id, ref.attempt) for ref in hello.live]
        paused = [(ref.request_id, ref.attempt) for ref in hello.paused]
        self.core.attach_frontend(instance, live, paused, self._clock())
        logger.info("frontend %s attached with %d requests", instance, len(live))
        self._advance()
        return link

    def on_frontend(self, link: FrontendLink, message: scheduler_pb2.AttachFrontendRequest) -> None:
        """Takes what clients want, in order."""
        if self._frontends.get(link.instance) is not link:
            return
        for operation in message.operations:
            self._operate(link.instance, operation)
        self._advance()

    def _operate(self, instance: str, operation: scheduler_pb2.FrontendOperation) -> None:
        kind = operation.WhichOneof("operation")
        if kind is None:
            return
        body = getattr(operation, kind)
        key, attempt, now = RequestKey(instance, body.ref.request_id), body.ref.attempt, self._clock()
        if kind == "submit":
            request = delta.parse_submit(body, instance)
            self.core.submit(request, now)
            if self._spans is not None:
                self._spans.submitted(request, now)
        elif kind == "cancel":
            self.core.cancel(key, attempt)
        elif kind == "finish":
            self.core.finish(key, attempt)
        elif kind == "check":
            self.core.check(key, attempt, body.worker_id, body.worker_instance, now)
        else:
            self.core.set_paused(key, attempt, kind == "pause")

    def detach_frontend(self, link: FrontendLink) -> None:
        """The frontend's stream ended."""
        if self._frontends.get(link.instance) is link:
            logger.info("frontend %s detached", link.instance)
            del self._frontends[link.instance]
            self.core.detach_frontend(link.instance, self._clock())

    # -- out --

    def tick(self) -> None:
        """Lets grace times run out; about every second."""
        known, level = set(self.core.workers), self.core.safe_mode.budget_level
        self.core.tick(self._clock())
        if self.core.safe_mode.budget_level != level:
            self._log_safe_mode()
        if set(self.core.workers) != known:
            self._tell_directory()
        self._advance()

    def _log_safe_mode(self) -> None:
        mode = self.core.safe_mode
        burn = mode.burn(self._clock())
        if mode.budget_level is None:
            logger.warning(
                "safe mode by the error budget is lifted; it burns %.1f times as fast as it may", burn
            )
        else:
            logger.warning(
                "safe mode: classes below %d are suspended; the error budget burns %.1f times as fast as it may",
                mode.budget_level,
                burn,
            )

    def _advance(self, concerned: str | None = None) -> None:
        """Sends every step that can be sent, then what frontends have to know. When only one worker is `concerned`,
        the others are looked at only if a request waits that an idle one might take."""
        workers = [concerned] if concerned is not None else list(self._workers)
        if concerned is not None and self.core.may_place:
            workers += [other for other in self._workers if not self.core.workers[other].records]
        for worker_id in workers:
            if worker_id not in self._workers:
                continue  # it was named twice, and dropped the first time
            try:
                self._advance_worker(worker_id)
            except OutboxFullError:
                logger.error("worker %s does not read its steps", worker_id)
                self._forget_link(worker_id)
            except Exception:
                # Whoever's message brought us here has nothing to do with it. The worker's snapshot puts it right.
                logger.exception("no step for worker %s; it is asked for its snapshot", worker_id)
                self._forget_link(worker_id)
        for notice in self.core.drain_notices():
            self._tell(notice)

    def _advance_worker(self, worker_id: str) -> None:
        link, worker = self._workers[worker_id], self.core.workers[worker_id]
        while (step := self.core.schedule(worker_id, self._clock())) is not None:
            for message in delta.build_messages(step, worker, self.core.epoch, MAX_BATCH_BYTES):
                link.send(message)
            if self._spans is not None:
                self._spans.stepped(worker, step, self._clock())
        if worker.hold_until > self._clock() and link.timer is None and worker.records:
            link.timer = self._call_at(worker.hold_until, lambda: self._on_timer(worker_id, link))

    def _on_end(self, request: Request) -> None:
        """The core has forgotten a request."""
        if self._spans is not None:
            self._spans.ended(request, self._clock())

    def _on_timer(self, worker_id: str, link: WorkerLink) -> None:
        """A step was held back for arrivals; now is the time."""
        link.timer = None
        if self.is_current(worker_id, link):
            self._advance(worker_id)

    def _tell(self, notice: Notice) -> None:
        """Frontends without a link learn it from their next hello."""
        link = self._frontends.get(notice.key.frontend_instance)
        if link is not None and not link.put(_notice_message(notice)):
            self.detach_frontend(link)

    def _tell_directory(self) -> None:
        for link in list(self._frontends.values()):
            if not link.put(self._directory()):
                self.detach_frontend(link)

    def _directory(self) -> scheduler_pb2.AttachFrontendResponse:
        workers = [(self.core.workers[worker_id], link) for worker_id, link in self._workers.items()]
        entries = [_entry(worker, link.model) for worker, link in workers]
        return scheduler_pb2.AttachFrontendResponse(
            workers=scheduler_pb2.WorkerDirectory(workers=entries), scheduler_epoch=self.core.epoch
        )


def _entry(worker: Worker, model: scheduler_pb2.ModelEntry) -> scheduler_pb2.WorkerEntry:
    info = worker.info
    entry = scheduler_pb2.WorkerEntry(
        worker_id=info.worker_id, worker_instance=info.instance, address=info.address
    )
    entry.model.CopyFrom(model)
    entry.model.max_model_len = entry.model.max_request_tokens = worker.limits.max_model_len
    return entry


def _notice_message(notice: Notice) -> scheduler_pb2.AttachFrontendResponse:
    ref = scheduler_pb2.RequestRef(request_id=notice.key.request_id, attempt=notice.attempt)
    message = scheduler_pb2.AttachFrontendResponse()
    if isinstance(notice, Placed):
        message.placed.add(ref=ref, worker_id=notice.worker_id, num_cached_tokens=notice.num_cached_tokens)
    elif isinstance(notice, Lost):
        message.lost.add(ref=ref, reason=notice.reason, cause=notice.cause.value)
    else:
        rejected = message.rejected.add(ref=ref)
        rejected.error.code, rejected.error.message, rejected.error.field = (
            notice.code,
            notice.message,
            notice.field,
        )
        rejected.error.retry_after_ms = int((notice.retry_after_s or 0.0) * 1e3)
    return message


__all__ = ["DivergenceError", "FrontendLink", "Send", "StepLoop", "WorkerLink"]
