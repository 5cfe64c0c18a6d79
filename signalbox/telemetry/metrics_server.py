"""`/metrics` of a service without an HTTP server of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from signalbox.errors import StartupError
from signalbox.links.tls.scrapes import ScrapeGuard
from signalbox.runtime.parts import FAILURES, PartFailures, start_thread
from signalbox.telemetry.attributes import METRIC_PART_ENDED, METRIC_PART_FAILURES, METRIC_SPANS
from signalbox.telemetry.scrape_server import ScrapeServer
from signalbox.telemetry.spans import SpanCounts

log = logging.getLogger(__name__)

READ_TIMEOUT_S = 5.0
Labels = dict[str, str]
Samples = Iterable[tuple[Labels, float]]


class LoopCollector(Collector):
    """Reads the state on the event loop that owns it, whenever somebody scrapes."""

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read
        self._loop = asyncio.get_running_loop()

    def collect(self) -> Iterator[Metric]:
        """Called in a thread of the HTTP server. Raises RuntimeError when the loop has ended."""
        answer: Future[list[Metric]] = Future()

        def read() -> None:
            try:
                answer.set_result(list(self._read()))
            except Exception as error:
                answer.set_exception(error)

        # No coroutine: one that comes behind the end of the loop would never be awaited.
        self._loop.call_soon_threadsafe(read)
        return iter(answer.result(READ_TIMEOUT_S))


class PartsCollector(Collector):
    """Metrics of threads and tasks of this process that ended by an error. Any thread may collect them: the event loop
    may have failed."""

    def __init__(self, failures: PartFailures) -> None:
        self._failures = failures

    def collect(self) -> Iterator[Metric]:
        """Called in a thread of the HTTP server."""
        counts, ended = self._failures.counts, self._failures.ended
        failures = [({"part": part}, float(count)) for part, count in counts.items()]
        yield counter(METRIC_PART_FAILURES, "Errors of threads and tasks of this service.", failures)
        samples = [({"part": part}, float(part in ended)) for part in counts]
        yield gauge(METRIC_PART_ENDED, "Whether an error has ended the part (1).", samples)


class MetricsServer:
    """A server in a thread. It shows no more than what the process takes before it is told what."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(PartsCollector(FAILURES))
        self._stop: Callable[[], None] | None = None

    def show(self, read: Callable[[], Iterable[Metric]]) -> None:
        """Asks `read` at every scrape, on the event loop that runs now."""
        self._registry.register(LoopCollector(read))

    def start(self, address: str, guard: ScrapeGuard | None = None) -> None:
        """Listens on `host:port` (port 0: any); empty: does nothing. guard: TLS, and who may read; None: plaintext, and
        everybody. Raises StartupError when it cannot."""
        if not address:
            return
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise StartupError(f"metrics must be host:port, got {address!r}")
        try:
            server = ScrapeServer(host.strip("[]"), int(port), self._registry, guard)
        except (OSError, OverflowError):
            raise StartupError(
                f"cannot serve metrics on {address}: the port is in use or the address is not ours"
            ) from None
        thread = start_thread("metrics", server.serve_forever)

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        self._stop = stop
        log.info(
            "metrics on port %d, %s", server.server_port, "in plaintext" if guard is None else "over TLS"
        )

    async def stop(self) -> None:
        """Answers no scrape any more."""
        if self._stop is not None:
            await asyncio.to_thread(self._stop)
            self._stop = None


def gauge(name: str, documentation: str, samples: Samples) -> Metric:
    """A value that goes up and down, as `samples` say."""
    return _fill(GaugeMetricFamily(name, documentation), samples)


def counter(name: str, documentation: str, samples: Samples) -> Metric:
    """A value that only rises; Prometheus sees it as `name`_total."""
    family = CounterMetricFamily(name, documentation)
    for labels, value in samples:
        family.add_sample(name + "_total", labels, value)
    return family


def span_counts(counts: SpanCounts) -> Metric:
    """What became of the spans of this process."""
    results = {
        "exported": counts.num_exported,
        "failed": counts.num_failed,
        "dropped": counts.num_dropped,
    }
    samples = [({"result": result}, float(count)) for result, count in results.items()]
    return counter(METRIC_SPANS, "Spans by what became of them.", samples)


def _fill(family: Metric, samples: Samples) -> Metric:
    for labels, value in samples:
        family.add_sample(family.name, labels, value)
    return family
