"""Tracing: spans are made from recorded times, wait in a bounded queue, and leave from a thread of their own.

Nothing here fails or delays a request or a step: a full queue drops and counts. Without an OTLP endpoint in the
environment the tracer is off, makes no span, and OpenTelemetry is not even imported (signalbox/telemetry/otlp.py is).

All times are seconds of `time.monotonic()`, as the services measure them; they become wall time when a span leaves.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from signalbox.runtime.parts import start_thread
from signalbox.telemetry import trace_context
from signalbox.telemetry.trace_context import TraceContext

log = logging.getLogger(__name__)

MAX_QUEUE = 8192
"""Spans that may wait; about ten seconds of a busy service whose collector has gone."""
DRAIN_S = 0.5
"""How often the queue is emptied."""
FLUSH_S = 2.0
"""How long stopping may take for the spans that still wait."""

GRPC = "grpc"
HTTP = "http/protobuf"
PROTOCOLS = (GRPC, HTTP)
"""How OTLP may travel, as OTEL_EXPORTER_OTLP_PROTOCOL calls it."""

Value = str | bool | int | float | Sequence[str]
Attributes = Mapping[str, Value]
_NONE: Attributes = {}
_ids = random.Random()


@dataclass(slots=True)
class Span:
    """A span that is being recorded. Nobody else sees it before `end`, and whoever holds it owns it until then."""

    name: str
    context: TraceContext
    parent: TraceContext | None
    start_s: float
    tracer: Tracer = field(repr=False)
    is_entry: bool = False
    """The call came from outside (kind SERVER)."""
    attributes: dict[str, Value] = field(default_factory=dict)
    events: list[tuple[str, float, Attributes]] = field(default_factory=list)
    """What happened meanwhile: (name, seconds, attributes)."""
    links: list[TraceContext] = field(default_factory=list)
    """Spans that this one goes on from, of an earlier attempt."""
    end_s: float = 0.0
    error: str | None = None
    """A sentence when what the span is about has failed."""

    def event(self, name: str, at_s: float, attributes: Attributes = _NONE) -> None:
        """Notes that something happened at `at_s`."""
        self.events.append((name, at_s, attributes))

    def end(self, at_s: float, error: str | None = None) -> None:
        """The span is complete; to be called once."""
        self.end_s, self.error = at_s, error
        self.tracer.record(self)

    def sibling(self, name: str, at_s: float) -> Span:
        """Another span under the same parent."""
        context = self.context._replace(span_id=new_span_id())
        return Span(name, context, self.parent, at_s, self.tracer)


@dataclass
class SpanCounts:
    """What became of the spans."""

    num_exported: int = 0
    num_failed: int = 0
    """Spans that the collector did not take."""
    num_dropped: int = 0
    """Spans that were dropped because the queue was full."""


class Sink(Protocol):
    """Where spans go: it samples, and takes what has ended."""

    counts: SpanCounts

    def sample(self, parent: TraceContext | None, trace_id: int, name: str, is_entry: bool) -> str | None:
        """The tracestate of a span that is to be recorded; None: it is not."""

    def export(self, waiting: deque[Span]) -> None:
        """Takes from the left of `waiting` what it can."""

    def close(self, timeout_s: float) -> None:
        """Sends what it has taken, then forgets the rest."""


class Tracer:
    """Makes spans. This one is off and makes none."""

    is_on = False
    counts = SpanCounts()

    def start(
        self, name: str, traceparent: str, tracestate: str, at_s: float, *, is_entry: bool = False
    ) -> Span | None:
        """A span under the one that `traceparent` names. Without that, an entry starts a trace, and anything else has
        none. None: not traced."""
        return None

    def record(self, span: Span) -> None:
        """Takes a span that has ended."""

    def stop(self) -> None:
        """Sends what waits, for FLUSH_S at most."""


OFF = Tracer()


class RecordingTracer(Tracer):
    """A tracer that is on. `start` and `record` may be called in any thread and never wait."""

    is_on = True

    def __init__(self, sink: Sink, max_queue: int = MAX_QUEUE) -> None:
        self._sink = sink
        self.counts = sink.counts
        self._max_queue = max_queue
        self._waiting: deque[Span] = deque()
        self._stopping = threading.Event()
        self._thread = start_thread("telemetry", self._run)

    def start(
        self, name: str, traceparent: str, tracestate: str, at_s: float, *, is_entry: bool = False
    ) -> Span | None:
        """A span under the one that `traceparent` names, else the first of a trace if it is an entry. None: not
        traced."""
        parent = trace_context.parse(traceparent, tracestate)
        if parent is None and not is_entry:
            return None
        trace_id = parent.trace_id if parent else _ids.getrandbits(128) or 1
        state = self._sink.sample(parent, trace_id, name, is_entry)
        if state is None:
            return None
        return Span(name, TraceContext(trace_id, new_span_id(), True, state), parent, at_s, self, is_entry)

    def record(self, span: Span) -> None:
        """Queues a span that has ended; counts it as dropped when the queue is full."""
        if len(self._waiting) >= self._max_queue:
            self.counts.num_dropped += 1
        else:
            self._waiting.append(span)

    def stop(self) -> None:
        """Sends what waits, for FLUSH_S at most. The sink is closed in a thread: a collector that has gone could hold
        it for longer."""
        self._stopping.set()
        self._thread.join(FLUSH_S)

    def _run(self) -> None:
        while not self._stopping.wait(DRAIN_S):
            if self._waiting:
                self._export()
        self._export()
        try:
            self._sink.close(FLUSH_S / 2)
        except Exception:
            log.exception("the exporter of spans could not be closed")

    def _export(self) -> None:
        try:
            self._sink.export(self._waiting)
        except Exception:
            log.exception("spans could not be exported")


def new_span_id() -> int:
    """A random id, never 0."""
    return _ids.getrandbits(64) or 1


def wall_offset_ns() -> int:
    """What to add to the monotonic clock, in nanoseconds: the tightest of some readings, as any may be interrupted."""
    best, width = 0, 1 << 62
    for _ in range(4):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if after - before < width:
            best, width = wall - (before + after) // 2, after - before
    return best


def endpoint(environ: Mapping[str, str]) -> str:
    """Where the standard variables want traces sent over OTLP; empty: nowhere."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ""
    exporters = {name.strip() for name in environ.get("OTEL_TRACES_EXPORTER", "otlp").split(",")}
    if not exporters & {"otlp", ""}:
        return ""
    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return next((value for name in names if (value := environ.get(name, "").strip())), "")


def start(service: str, instance: str) -> Tracer:
    """The tracer of this process: off unless the environment says where traces go. Never raises.

    `service` and `instance` name it in traces, where the environment does not.
    """
    address = endpoint(os.environ)
    if not address:
        return OFF
    names = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((value for name in names if (value := os.environ.get(name))), GRPC)
    if protocol not in PROTOCOLS:
        log.warning("tracing is off: OTLP goes over %s here, not over %s", " or ".join(PROTOCOLS), protocol)
        return OFF
    try:
        from signalbox.telemetry.otlp import OtlpSink  # noqa: PLC0415 - only whoever traces needs OpenTelemetry

        tracer = RecordingTracer(OtlpSink(service, instance, protocol))
    except ImportError as error:
        log.warning("tracing is off: %s (pip install 'signalbox[telemetry]')", error)
        return OFF
    except Exception:
        log.exception("tracing is off: OpenTelemetry could not be set up")
        return OFF
    log.info("traces go to %s", address)
    return tracer
