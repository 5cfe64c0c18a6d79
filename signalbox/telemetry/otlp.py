"""Spans over OTLP: the one file that imports OpenTelemetry's SDK, and only when traces are wanted.

The SDK brings what its OTEL_* variables describe: sampler, resource, batches, exporter. Spans do not pass through its
tracer, which would read clocks and draw ids when a span is started in code; ours are known only when they have ended.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    TraceFlags,
    TraceState,
    set_span_in_context,
)
from opentelemetry.trace.status import Status, StatusCode

from signalbox import __version__
from signalbox.telemetry.attributes import SCHEMA_URL
from signalbox.telemetry.spans import HTTP, Span, SpanCounts, wall_offset_ns
from signalbox.telemetry.trace_context import TraceContext

SDK_QUEUE = 2048
"""Spans that the SDK's own queue takes unless OTEL_BSP_MAX_QUEUE_SIZE says otherwise."""
NO_PROXY = ("no_proxy", "no_grpc_proxy")
"""Variables with hosts that are reached directly; where gRPC finds the second one it does not read the first."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SCOPE = InstrumentationScope("signalbox", __version__, SCHEMA_URL)


class OtlpSink:
    """The `Sink` of a collector."""

    def __init__(self, service: str, instance: str, protocol: str) -> None:
        """protocol: one of `spans.PROTOCOLS`. Where spans go, and everything else of the transport, the exporter reads
        from the environment."""
        self.counts = SpanCounts()
        self._num_handed_over = 0
        # What has been handed over and not exported stays below the size of the SDK's queue, which drops uncounted.
        self._max_pending = int(os.environ.get("OTEL_BSP_MAX_QUEUE_SIZE") or SDK_QUEUE)
        # Its warnings about every retry would fill the log of a service whose collector is away; failures stay.
        for name in ("grpc.exporter", "http.trace_exporter"):
            logging.getLogger(f"opentelemetry.exporter.otlp.proto.{name}").setLevel(logging.ERROR)
        self._exporter = _CountingExporter(_make_exporter(protocol), self.counts)
        self._provider = TracerProvider(resource=_resource(service, instance), shutdown_on_exit=False)
        self._processor = BatchSpanProcessor(self._exporter)
        self._provider.add_span_processor(self._processor)

    def sample(self, parent: TraceContext | None, trace_id: int, name: str, is_entry: bool) -> str | None:
        """The tracestate of a span that the SDK's sampler wants recorded; None: it does not."""
        context = Context()
        if parent is not None:
            context = set_span_in_context(NonRecordingSpan(_context(parent, is_remote=True)), context)
        result = self._provider.sampler.should_sample(context, trace_id, name, _kind(is_entry))
        if result.decision is not Decision.RECORD_AND_SAMPLE:
            return None
        return result.trace_state.to_header() if result.trace_state else ""

    def export(self, waiting: deque[Span]) -> None:
        """Hands spans to the SDK, oldest first, as long as its queue has room for them."""
        offset_ns = wall_offset_ns()
        while waiting and self._num_handed_over - self._exporter.num_done < self._max_pending:
            self._num_handed_over += 1
            self._processor.on_end(self._readable(waiting.popleft(), offset_ns))

    def close(self, timeout_s: float) -> None:
        """Has the SDK send what it has, for `timeout_s` at most."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(timeout_s)

    def _readable(self, span: Span, offset_ns: int) -> ReadableSpan:
        def wall(at_s: float) -> int:
            return int(at_s * 1e9) + offset_ns

        return ReadableSpan(
            name=span.name,
            context=_context(span.context),
            parent=_context(span.parent, is_remote=True) if span.parent else None,
            resource=self._provider.resource,
            attributes=span.attributes,
            events=[Event(name, dict(attributes), wall(at_s)) for name, at_s, attributes in span.events],
            links=[Link(_context(linked, is_remote=True)) for linked in span.links],
            kind=_kind(span.is_entry),
            status=Status() if span.error is None else Status(StatusCode.ERROR, span.error),
            start_time=wall(span.start_s),
            end_time=wall(max(span.end_s, span.start_s)),
            instrumentation_scope=_SCOPE,
        )


def _make_exporter(protocol: str) -> SpanExporter:
    _reach_this_machine_directly()
    # Only the one that is wanted: each brings a transport of its own.
    if protocol == HTTP:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

        return OTLPSpanExporter()
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter as GrpcSpanExporter,
    )

    return GrpcSpanExporter()


def _reach_this_machine_directly() -> None:
    """Adds loopback to the hosts that exporters reach without the machine's proxy; a collector elsewhere may be behind
    it. A lone `*` stays alone, as it means all hosts only then; gRPC does not know it."""
    names: tuple[str, ...] = NO_PROXY
    if (os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")).strip() == "*":
        os.environ["no_proxy"] = "*"
        os.environ.setdefault("no_grpc_proxy", "*")
        names = NO_PROXY[1:]
    for name in names:
        hosts = os.environ.get(name) or os.environ.get(name.upper())
        if name == NO_PROXY[0] or name in os.environ:
            os.environ[name] = ",".join(filter(None, (hosts, *LOOPBACK)))


class _CountingExporter(SpanExporter):
    """An exporter that counts what has left."""

    def __init__(self, exporter: SpanExporter, counts: SpanCounts) -> None:
        self._exporter, self._counts = exporter, counts

    @property
    def num_done(self) -> int:
        return self._counts.num_exported + self._counts.num_failed

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            if result is SpanExportResult.SUCCESS:
                self._counts.num_exported += len(spans)
            else:
                self._counts.num_failed += len(spans)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


def _resource(service: str, instance: str) -> Resource:
    """What the environment says goes first."""
    ours = {
        "service.name": f"signalbox-{service}",
        "service.version": __version__,
        "service.instance.id": instance,
    }
    detected = OTELResourceDetector().detect().attributes
    return Resource.create({name: value for name, value in ours.items() if value and name not in detected})


def _context(context: TraceContext, is_remote: bool = False) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if context.is_sampled else TraceFlags.DEFAULT)
    state = TraceState.from_header([context.tracestate]) if context.tracestate else None
    return SpanContext(context.trace_id, context.span_id, is_remote, flags, state)


def _kind(is_entry: bool) -> SpanKind:
    return SpanKind.SERVER if is_entry else SpanKind.INTERNAL
