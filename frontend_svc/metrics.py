"""What the frontend counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from frontend_svc.events import Finished
from frontend_svc.session import Session
from signalbox import __version__
from signalbox.errors import SignalboxError, code_of

_TTFT_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_INTER_TOKEN_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class Metrics:
    """The `Observer` of all sessions, with a registry of its own."""

    def __init__(self, name: str = "", frontend_instance: str = "") -> None:
        self._registry = CollectorRegistry()
        self._requests = self._counter("requests", "Ended requests by outcome.", ["outcome"])
        self._prompt_tokens = self._counter("prompt_tokens", "Prompt tokens of ended requests.")
        self._cached_tokens = self._counter(
            "cached_prompt_tokens", "Prompt tokens that the prefix cache saved."
        )
        self._output_tokens = self._counter("output_tokens", "Output tokens received.")
        self._open = Gauge("signalbox_frontend_open_sessions", "Open requests.", registry=self._registry)
        self._first_token_s = Histogram(
            "signalbox_frontend_time_to_first_token_seconds",
            "From acceptance to the first output token.",
            buckets=_TTFT_S,
            registry=self._registry,
        )
        self._inter_token_s = Histogram(
            "signalbox_frontend_inter_token_seconds",
            "Between two deliveries of output of a request, divided by the tokens of the later one.",
            buckets=_INTER_TOKEN_S,
            registry=self._registry,
        )
        info = Gauge(
            "signalbox_frontend_info",
            "Always 1.",
            ["version", "name", "frontend_instance"],
            registry=self._registry,
        )
        info.labels(__version__, name, frontend_instance).set(1)

    def watch_open(self, count: Callable[[], int]) -> None:
        """`count` is asked for the open sessions at every scrape."""
        self._open.set_function(count)

    def on_refused(self, error: SignalboxError) -> None:
        """A request was refused before it had a session."""
        self._requests.labels(code_of(error)).inc()

    def on_output(self, session: Session, num_tokens: int, now: float) -> None:
        """Output came."""
        self._output_tokens.inc(num_tokens)
        if session.last_output_s:
            self._inter_token_s.observe((now - session.last_output_s) / num_tokens)
        else:
            self._first_token_s.observe(now - session.arrival_s)

    def on_end(self, session: Session, finished: Finished) -> None:
        """A request ended: by its finish reason, or by the error that ended it."""
        outcome = code_of(finished.error) if finished.error else finished.reason.name.lower()
        self._requests.labels(outcome).inc()
        self._prompt_tokens.inc(finished.num_prompt_tokens)
        self._cached_tokens.inc(finished.num_cached_tokens)

    def render(self) -> bytes:
        """The text exposition format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, documentation: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(f"signalbox_frontend_{name}", documentation, labels, registry=self._registry)
