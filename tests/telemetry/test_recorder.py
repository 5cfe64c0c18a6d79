"""The queue of spans: bounded, never in the way of whoever records."""

from __future__ import annotations

import threading
import time
from collections import deque

import pytest

from signalbox.telemetry import spans, trace_context
from signalbox.telemetry.spans import RecordingTracer, Span, SpanCounts
from signalbox.telemetry.trace_context import TraceContext
from tests.ports import free_ports
from tests.telemetry.conftest import environment
from tests.telemetry.receiver import Receiver
from tests.telemetry.recorder import TRACEPARENT


class SlowSink:
    """Takes nothing before `open` is set."""

    def __init__(self) -> None:
        self.counts = SpanCounts()
        self.open = threading.Event()
        self.taken: list[Span] = []

    def sample(self, parent: TraceContext | None, trace_id: int, name: str, is_entry: bool) -> str | None:
        return ""

    def export(self, waiting: deque[Span]) -> None:
        if self.open.is_set():
            while waiting:
                self.taken.append(waiting.popleft())

    def close(self, timeout_s: float) -> None:
        pass


class BrokenSink(SlowSink):
    def export(self, waiting: deque[Span]) -> None:
        raise RuntimeError("no")

    def close(self, timeout_s: float) -> None:
        raise RuntimeError("no")


def record(tracer: RecordingTracer, count: int) -> None:
    for number in range(count):
        span = tracer.start(f"span {number}", TRACEPARENT, "", 1.0)
        assert span is not None
        span.end(2.0)


def test_a_full_queue_drops_and_counts() -> None:
    sink = SlowSink()
    tracer = RecordingTracer(sink, max_queue=10)
    record(tracer, 15)
    assert tracer.counts.num_dropped == 5
    sink.open.set()
    tracer.stop()
    assert [span.name for span in sink.taken] == [f"span {number}" for number in range(10)]


def test_a_sink_that_fails_harms_nobody() -> None:
    tracer = RecordingTracer(BrokenSink(), max_queue=10)
    record(tracer, 3)
    tracer.stop()


def test_a_span_has_a_parent_or_is_an_entry() -> None:
    tracer = RecordingTracer(SlowSink())
    child = tracer.start("child", TRACEPARENT, "", 0.0)
    assert child is not None
    assert child.parent == trace_context.parse(TRACEPARENT)
    assert child.context.traceparent.startswith(f"00-{'a' * 32}-")
    assert tracer.start("nobody's", "", "", 0.0) is None
    root = tracer.start("root", "", "", 0.0, is_entry=True)
    assert root is not None
    assert root.parent is None
    tracer.stop()


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        "rubbish",
        f"ff-{'a' * 32}-{'b' * 16}-01",
        f"00-{'0' * 32}-{'b' * 16}-01",
        f"00-{'a' * 32}-{'0' * 16}-01",
    ],
)
def test_what_is_no_trace_context_is_none(traceparent: str) -> None:
    assert trace_context.parse(traceparent) is None


def test_a_trace_context_survives_the_wire() -> None:
    for traceparent in (TRACEPARENT, TRACEPARENT[:-1] + "0"):
        context = trace_context.parse(traceparent)
        assert context is not None
        assert context.traceparent == traceparent


def test_stopping_waits_for_a_dead_collector_no_longer_than_it_may() -> None:
    with environment(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{free_ports(1)[0]}"):
        tracer = spans.start("test", "0")
    assert isinstance(tracer, RecordingTracer)
    record(tracer, 100)
    started = time.monotonic()
    tracer.stop()
    assert time.monotonic() - started < spans.FLUSH_S + 0.5


def test_the_variables_of_opentelemetry_count(receiver: Receiver) -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
        "OTEL_SERVICE_NAME": "mine",
        "OTEL_TRACES_SAMPLER": "parentbased_always_off",
    }
    with environment(**variables):
        tracer = spans.start("test", "0")
    assert tracer.start("root", "", "", 0.0, is_entry=True) is None
    child = tracer.start("child of mine", TRACEPARENT, "", 0.0)
    assert child is not None
    child.end(1.0)
    tracer.stop()
    assert tracer.counts.num_exported == 1
    assert [span.service for span in receiver.spans() if span.name == "child of mine"] == ["mine"]
