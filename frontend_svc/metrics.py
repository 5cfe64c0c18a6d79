"""What the frontend counts, for Prometheus."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from frontend_svc.clock import loop_time
from frontend_svc.key_usage import KeyUsage
from frontend_svc.phases import PhaseHistograms
from frontend_svc.requests.events import Finished
from frontend_svc.requests.sessions.session import Session
from signalbox import __version__
from signalbox.errors import SignalboxError, code_of
from signalbox.protocol.enums import LossCause, WorkerReach
from signalbox.runtime.process import take_memory_ends
from signalbox.telemetry import attributes as names
from signalbox.telemetry.metrics_server import span_counts
from signalbox.telemetry.spans import SpanCounts

logger = logging.getLogger(__name__)

# Buckets of the GenAI semantic conventions, and further ones for long reasoning.
_DURATION_S = (
    0.01,
    0.02,
    0.04,
    0.08,
    0.16,
    0.32,
    0.64,
    1.28,
    2.56,
    5.12,
    10.24,
    20.48,
    40.96,
    81.92,
    163.84,
    327.68,
    655.36,
)
_FIRST_TOKEN_S = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
)
_OUTPUT_TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)
# Our own.
_INTER_TOKEN_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_DELIVERY_S = (
    0.00025,
    0.0005,
    0.001,
    0.0015,
    0.002,
    0.003,
    0.004,
    0.006,
    0.008,
    0.012,
    0.016,
    0.024,
    0.05,
    0.1,
    0.5,
)
_GEN_AI = (names.LABEL_OPERATION, names.LABEL_PROVIDER, names.LABEL_MODEL)


class Metrics:
    """The `Observer` of all sessions, with a registry of its own."""

    def __init__(self, name: str = "", spans: SpanCounts | None = None) -> None:
        self._registry = CollectorRegistry()
        self._page = CollectorRegistry()
        """What `render` shows: ours, and what the process takes."""
        self._page.register(_Ours(self.collect))
        ProcessCollector(registry=self._page)
        self._phases, self._keys = PhaseHistograms(self._registry), KeyUsage(self._registry)
        self._tell_refused: Callable[[SignalboxError], None] = lambda error: None
        self._requests = self._counter(
            names.METRIC_REQUESTS, "Ended requests by outcome and model.", ["outcome", names.LABEL_MODEL]
        )
        self._prompt_tokens = self._counter(names.METRIC_PROMPT_TOKENS, "Prompt tokens of ended requests.")
        self._cached_tokens = self._counter(
            names.METRIC_CACHED_TOKENS, "Prompt tokens that the prefix cache saved."
        )
        self._output_tokens = self._counter(names.METRIC_OUTPUT_TOKENS, "Output tokens received.")
        self._usage = self._counter(
            names.METRIC_TOKEN_USAGE, "Tokens of ended requests.", [*_GEN_AI, names.LABEL_TOKEN_TYPE]
        )
        self._connections_refused = self._counter(
            names.METRIC_CONNECTIONS_REFUSED, "Connections refused or ended ahead of any key.", ["reason"]
        )
        for reason in ("address", "memory"):
            self._connections_refused.labels(reason)  # from 0 on: an alert asks for its growth
        self._counter(
            names.METRIC_MEMORY_ENDS, "Processes before this one that ended for want of memory."
        ).inc(take_memory_ends())
        self._losses = self._counter(names.METRIC_LOSSES, "Attempts lost, by cause.", ["cause"])
        self._moved = self._counter(
            names.METRIC_MOVED, "Hand-offs between workers of requests whose output went on."
        )
        self._other_identities = self._counter(
            names.METRIC_OTHER_IDENTITIES, "Outputs that went on under another identity of the model."
        )
        self._open = Gauge(names.METRIC_OPEN_SESSIONS, "Open requests.", registry=self._registry)
        self._duration_s = self._histogram(
            names.METRIC_REQUEST_DURATION,
            "From acceptance to the terminal event.",
            _DURATION_S,
            [*_GEN_AI, names.LABEL_ERROR],
        )
        self._first_token_s = self._histogram(
            names.METRIC_TIME_TO_FIRST_TOKEN, "From acceptance to the first output.", _FIRST_TOKEN_S, _GEN_AI
        )
        self._output_token_s = self._histogram(
            names.METRIC_TIME_PER_OUTPUT_TOKEN,
            "Per output token after the first, of a request that ended well.",
            _OUTPUT_TOKEN_S,
            _GEN_AI,
        )
        self._inter_token_s = self._histogram(
            names.METRIC_INTER_TOKEN,
            "Between two deliveries of output of a request, divided by the tokens of the later one.",
            _INTER_TOKEN_S,
        )
        self._delivery_s = self._histogram(
            names.METRIC_DELIVERY,
            "From a worker's message to the last piece of its output on the way to a client.",
            _DELIVERY_S,
        )
        info = Gauge(
            names.METRIC_FRONTEND_INFO,
            "Always 1.",
            ["version", "name"],
            registry=self._registry,
        )
        info.labels(__version__, name).set(1)
        if spans is not None:
            self._registry.register(_Spans(spans))

    def watch_open(self, count: Callable[[], int]) -> None:
        """`count` is asked for the open sessions at every scrape."""
        self._open.set_function(count)

    def watch_memory(self, share: Callable[[], float]) -> None:
        """`share` is asked at every scrape for the part of the memory limit that is in use."""
        gauge = Gauge(names.METRIC_MEMORY_RATIO, "Part of the memory limit in use.", registry=self._registry)
        gauge.set_function(share)

    def watch_reach(self, reach: Callable[[], Iterable[tuple[str, WorkerReach]]]) -> None:
        """`reach` is asked at every scrape how each listed worker is reached."""
        self._registry.register(_WorkerReach(reach))

    def watch_refusals(self, tell: Callable[[SignalboxError], None]) -> None:
        """`tell` is told of each request that is refused before it has a session."""
        self._tell_refused = tell

    def watch_ring(self, gauges: Collector) -> None:
        """`gauges` is asked at every scrape for the load of the whole ring."""
        self._registry.register(gauges)

    def on_refused(self, error: SignalboxError) -> None:
        """A request was refused before it had a session. It counts for no model: the name that it gave may be
        that of none, and clients do not write labels."""
        self._requests.labels(code_of(error), "").inc()
        self._tell_refused(error)

    def on_connection_refused(self, reason: str) -> None:
        """A connection asked for too much, took too long, or was one too many. From any thread."""
        self._connections_refused.labels(reason).inc()

    @contextlib.contextmanager
    def counting_refusals(self) -> Iterator[None]:
        """Around everything that happens before there is a session, which counts its own end."""
        try:
            yield
        except SignalboxError as error:
            self.on_refused(error)
            raise

    def on_output(self, session: Session, num_tokens: int, now: float) -> None:
        """Counts output tokens, and observes the time to the first or between two."""
        self._output_tokens.inc(num_tokens)
        if session.last_output_s:
            self._inter_token_s.observe((now - session.last_output_s) / num_tokens)
        else:
            self._first_token_s.labels(*_labels(session)).observe(now - session.arrival_s, _exemplar(session))

    def on_delivered(self, seconds: float) -> None:
        """The output of one message is on its way."""
        self._delivery_s.observe(seconds)

    def on_lost(self, cause: LossCause) -> None:
        """Counts a lost attempt by its cause."""
        self._losses.labels(cause.name.lower()).inc()

    def on_moved(self, session: Session) -> None:
        """Counts a request that goes on at another worker."""
        self._moved.inc()

    def on_other_identity(self, session: Session, identity: str) -> None:
        """Counts and logs an output that goes on with other weights, or in another form."""
        self._other_identities.inc()
        logger.warning("%s goes on under %s: no worker of its own is left", session.request_id, identity)

    def on_end(self, session: Session, finished: Finished) -> None:
        """A request ended: by its finish reason, or by the error that ended it."""
        labels, error = _labels(session), code_of(finished.error) if finished.error else ""
        self._requests.labels(error or finished.reason.name.lower(), session.request.model).inc()
        self._prompt_tokens.inc(finished.num_prompt_tokens)
        self._cached_tokens.inc(finished.num_cached_tokens)
        self._usage.labels(*labels, "input").inc(finished.num_prompt_tokens)
        self._usage.labels(*labels, "output").inc(finished.num_output_tokens)
        self._phases.observe(session, finished)
        self._keys.add(session.request, finished)
        exemplar = _exemplar(session)
        self._duration_s.labels(*labels, error).observe(loop_time() - session.arrival_s, exemplar)
        num_later = len(session.output) - 1
        if not error and num_later > 0:
            output_s = session.last_output_s - session.first_output_s
            self._output_token_s.labels(*labels).observe(output_s / num_later, exemplar)

    def collect(self) -> Iterable[Metric]:
        """All metrics but those of the process; to be called on the event loop."""
        self._keys.expire()
        return self._registry.collect()

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The page of all metrics and its content type: OpenMetrics, which has exemplars, for whoever accepts it, else
        Prometheus's text."""
        encode, content_type = choose_encoder(accept)
        return encode(self._page), content_type

    def _counter(self, name: str, documentation: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(name, documentation, labels, registry=self._registry)

    def _histogram(
        self, name: str, documentation: str, buckets: Sequence[float], labels: Sequence[str] = ()
    ) -> Histogram:
        return Histogram(name, documentation, labels, buckets=buckets, registry=self._registry)


class _Ours(Collector):
    """All but those of the process, within another registry."""

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return self._read()


class _WorkerReach(Collector):
    """How workers are reached from this frontend."""

    def __init__(self, reach: Callable[[], Iterable[tuple[str, WorkerReach]]]) -> None:
        self._reach = reach

    def collect(self) -> Iterator[Metric]:
        gauge = GaugeMetricFamily(
            names.METRIC_WORKER_REACH, "1 for how a listed worker is reached.", labels=["worker_id", "state"]
        )
        for worker_id, state in self._reach():
            gauge.add_metric([worker_id, state.name.lower()], 1)
        yield gauge


class _Spans(Collector):
    """What became of the spans of this process."""

    def __init__(self, counts: SpanCounts) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        yield span_counts(self._counts)


def _exemplar(session: Session) -> dict[str, str] | None:
    """Where the trace of an observed value is; None: the request is not traced."""
    if session.span is None:
        return None
    context = session.span.context
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def _labels(session: Session) -> tuple[str, str, str]:
    return session.request.operation, names.PROVIDER, session.request.model
