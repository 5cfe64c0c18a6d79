"""A tracer that keeps its spans."""

from __future__ import annotations

from signalbox.telemetry import trace_context
from signalbox.telemetry.spans import Span, SpanCounts, Tracer, new_span_id
from signalbox.telemetry.trace_context import TraceContext

TRACEPARENT = f"00-{'a' * 32}-{'b' * 16}-01"


class Recorder(Tracer):
    """Samples everything."""

    is_on = True

    def __init__(self) -> None:
        self.counts = SpanCounts()
        self.spans: list[Span] = []

    def start(
        self, name: str, traceparent: str, tracestate: str, at_s: float, *, is_entry: bool = False
    ) -> Span | None:
        parent = trace_context.parse(traceparent, tracestate)
        if parent is None and not is_entry:
            return None
        trace_id = parent.trace_id if parent else 1
        return Span(name, TraceContext(trace_id, new_span_id(), True), parent, at_s, self, is_entry)

    def record(self, span: Span) -> None:
        self.spans.append(span)

    def told(self) -> list[tuple[str, float, float, list[str]]]:
        """(name, start, end, events) of all spans, as they ended."""
        return [(s.name, s.start_s, s.end_s, [name for name, _, _ in s.events]) for s in self.spans]
