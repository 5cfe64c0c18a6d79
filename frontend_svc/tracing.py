"""The frontend's span of a request: from its arrival to its terminal event, over all attempts.

Nothing is recorded while output streams: the session keeps its times, and the span is written when it ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Literal

from frontend_svc.requests.events import Finished
from frontend_svc.requests.request import ClientRequest, Trace
from frontend_svc.requests.sessions.session import Session
from frontend_svc.requests.sessions.surroundings import Observer
from signalbox.errors import SignalboxError, code_of
from signalbox.protocol.enums import FinishReason, LossCause
from signalbox.telemetry import attributes as names
from signalbox.telemetry import trace_context
from signalbox.telemetry.spans import Span, Tracer

Sent = Literal["temperature", "top_k", "top_p", "frequency_penalty", "presence_penalty"]
_SAMPLING: Mapping[Sent, str] = {
    "temperature": names.GEN_AI_REQUEST_TEMPERATURE,
    "top_k": names.GEN_AI_REQUEST_TOP_K,
    "top_p": names.GEN_AI_REQUEST_TOP_P,
    "frequency_penalty": names.GEN_AI_REQUEST_FREQUENCY_PENALTY,
    "presence_penalty": names.GEN_AI_REQUEST_PRESENCE_PENALTY,
}
"""What a client chose, by its field; a seed may be larger than a number of OTLP."""


def begin(tracer: Tracer, request: ClientRequest) -> Span | None:
    """The span of a request that has just come in; None: it is not traced."""
    trace = request.trace
    return tracer.start(
        request.operation, trace.traceparent, trace.tracestate, time.monotonic(), is_entry=True
    )


def context_for_services(tracer: Tracer, request: ClientRequest, span: Span | None) -> Trace:
    """What scheduler and worker are told: our span if there is one; the client's when we do not trace ourselves;
    nothing for a request that is not sampled."""
    if span is not None:
        return Trace(span.context.traceparent, span.context.tracestate)
    theirs = trace_context.parse(request.trace.traceparent)
    return request.trace if theirs and theirs.is_sampled and not tracer.is_on else Trace()


def refuse(span: Span, request: ClientRequest, error: SignalboxError) -> None:
    """Ends the span of a request that did not become a session."""
    span.attributes |= {
        names.GEN_AI_OPERATION_NAME: request.operation,
        names.GEN_AI_PROVIDER_NAME: names.PROVIDER,
        names.GEN_AI_REQUEST_MODEL: request.model,
        names.ERROR_TYPE: code_of(error),
    }
    span.end(time.monotonic(), error.message)


class TracedSessions:
    """An `Observer` that passes everything on, and ends the spans of sessions."""

    def __init__(self, observer: Observer[Session]) -> None:
        self._observer = observer
        self.on_output: Callable[[Session, int, float], None] = observer.on_output
        self.on_delivered: Callable[[float], None] = observer.on_delivered
        self.on_lost: Callable[[LossCause], None] = observer.on_lost
        self.on_moved: Callable[[Session], None] = observer.on_moved
        self.on_other_identity: Callable[[Session, str], None] = observer.on_other_identity

    def on_end(self, session: Session, finished: Finished) -> None:
        """The terminal event is out."""
        self._observer.on_end(session, finished)
        if session.span is not None:
            _end(session.span, session, finished)


def _end(span: Span, session: Session, finished: Finished) -> None:
    request, error, now = session.request, finished.error, time.monotonic()
    reason = finished.reason.name.lower()
    span.name = f"{request.operation} {request.model}"
    span.attributes |= {
        names.GEN_AI_OPERATION_NAME: request.operation,
        names.GEN_AI_PROVIDER_NAME: names.PROVIDER,
        names.GEN_AI_REQUEST_MODEL: request.model,
        names.GEN_AI_REQUEST_MAX_TOKENS: request.max_tokens,
        names.GEN_AI_RESPONSE_ID: session.request_id,
        names.GEN_AI_RESPONSE_FINISH_REASONS: (reason,),
        names.GEN_AI_USAGE_INPUT_TOKENS: finished.num_prompt_tokens,
        names.GEN_AI_USAGE_OUTPUT_TOKENS: finished.num_output_tokens,
        names.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: finished.num_cached_tokens,
        names.GEN_AI_RESPONSE_MODEL: request.model,
        names.ATTEMPT: session.attempt,
    }
    for field, name in _SAMPLING.items():
        if field in request.sampling:
            span.attributes[name] = request.sampling[field]
    if session.first_output_s:
        first_s = session.first_output_s - session.arrival_s
        span.attributes[names.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK] = first_s
    if session.first_output_s:
        span.event(names.EVENT_FIRST_TOKEN, session.first_output_s)
    if finished.reason is FinishReason.ABORT:
        span.event(names.EVENT_CANCELLED, now)
    else:
        span.event(names.EVENT_FINISHED, now, {names.REASON: reason})
    if error is not None:
        span.attributes[names.ERROR_TYPE] = code_of(error)
    # A client that left is no failure of ours.
    span.end(now, error.message if error is not None and finished.reason is FinishReason.ERROR else None)
