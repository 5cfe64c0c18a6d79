"""One span for each stay of a traced request in the queue: before it is placed, and whenever it is preempted.

All hooks are at the edge of the step loop; the core is asked, and knows nothing of time. A step costs what its
changes cost, and only for requests that carry a trace context.
"""

from __future__ import annotations

from scheduler_svc.core.state.requests.request import Request, RequestKey, RequestStatus
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker
from signalbox.telemetry import attributes as names
from signalbox.telemetry.spans import Attributes, Span, Tracer
from signalbox.telemetry.trace_context import TraceContext

_ENDS = {
    RequestStatus.FINISHED_STOPPED: "stop",
    RequestStatus.FINISHED_LENGTH_CAPPED: "length",
    RequestStatus.FINISHED_ABORTED: "abort",
    RequestStatus.FINISHED_IGNORED: "error",
    RequestStatus.FINISHED_ERROR: "error",
}
MAX_LAST = 4096
"""Requests whose next attempt can be linked to the one before."""
_QUEUED = (RequestStatus.WAITING, RequestStatus.PREEMPTED)


def _numbers(worker: Worker, step: StepDecision) -> Attributes:
    """What the worker looks like behind a decision."""
    return {
        names.STEP_ID: step.step_id,
        names.NUM_RUNNING: worker.table.num_running,
        names.NUM_FREE_BLOCKS: worker.pool.num_free,
        names.NUM_CACHED_BLOCKS: worker.pool.num_cached,
    }


class QueueSpans:
    """The stays that have not ended."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._stays: dict[RequestKey, tuple[Request, Span]] = {}
        self._last: dict[RequestKey, tuple[int, TraceContext]] = {}
        """Attempt and span of the last stay of each request that was traced, for its next attempt; the oldest go first.
        """

    def __len__(self) -> int:
        return len(self._stays)

    def submitted(self, request: Request, now: float, num_waiting: int = 0) -> None:
        """The core has taken a request, or refused it."""
        if request.traceparent and not request.status.is_finished:
            self._begin(request, "waiting", now, {names.NUM_WAITING: num_waiting})

    def stepped(self, worker: Worker, step: StepDecision, now: float) -> None:
        """A step was decided: who left the queue with it, and who is back."""
        for request in step.placed:
            if request.traceparent:
                attributes = {names.WORKER_ID: worker.info.worker_id, **_numbers(worker, step)}
                self._end(request.key, names.EVENT_PLACED, now, attributes, request.history.num_cached_tokens)
        for slot in step.preempted_slots:
            request = worker.request(slot)
            if request.traceparent:
                self._begin(request, "preempted", now, _numbers(worker, step))
        for start in step.resumed:
            request = worker.request(start.chunk.slot)
            if request.traceparent:
                numbers = _numbers(worker, step)
                self._end(request.key, names.EVENT_RESUMED, now, numbers, start.chunk.start)

    def attached(self, now: float) -> None:
        """A worker told where its requests stand: some may run that were thought preempted."""
        for key, (request, _) in list(self._stays.items()):
            if request.status not in _QUEUED:
                self._end(key, names.EVENT_RESUMED, now)

    def ended(self, request: Request, now: float) -> None:
        """Nothing follows for the request: it was finished, cancelled or lost."""
        if not request.traceparent:
            return
        if not request.status.is_finished:
            self._end(request.key, names.EVENT_LOST, now)
        elif request.status is RequestStatus.FINISHED_ABORTED:
            self._end(request.key, names.EVENT_CANCELLED, now)
        else:
            self._end(request.key, names.EVENT_FINISHED, now, {names.REASON: _ENDS[request.status]})

    def _begin(self, request: Request, reason: str, now: float, numbers: Attributes) -> None:
        span = self._tracer.start(names.SPAN_QUEUE, request.traceparent, request.tracestate, now)
        if span is None:
            return
        span.attributes[names.REQUEST_ID] = request.key.request_id
        span.attributes[names.ATTEMPT] = request.attempt
        span.attributes[names.QUEUE_REASON] = reason
        if reason == "preempted":
            assert request.worker_id is not None
            span.attributes[names.WORKER_ID] = request.worker_id
            span.attributes[names.NUM_PREEMPTIONS] = request.history.num_preemptions
            span.event(names.EVENT_PREEMPTED, now, numbers)
        else:
            span.event(names.EVENT_SUBMITTED, now, numbers)
        self._link(request, span)
        self._stays[request.key] = request, span

    def _link(self, request: Request, span: Span) -> None:
        """To the last stay of the attempt before, if it was here."""
        attempt, context = self._last.pop(request.key, (request.attempt, None))
        if context is not None and attempt != request.attempt:
            span.links.append(context)
        self._last[request.key] = request.attempt, span.context
        if len(self._last) > MAX_LAST:
            del self._last[next(iter(self._last))]

    def _end(
        self,
        key: RequestKey,
        event: str,
        now: float,
        attributes: Attributes | None = None,
        num_cached_tokens: int | None = None,
    ) -> None:
        request, span = self._stays.pop(key, (None, None))
        if request is None or span is None:
            return
        span.event(event, now, attributes or {})
        if num_cached_tokens is not None:
            span.attributes[names.NUM_CACHED_TOKENS] = num_cached_tokens
        if request.worker_id is not None:
            span.attributes[names.WORKER_ID] = request.worker_id
        span.end(now)
