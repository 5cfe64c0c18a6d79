"""Where the time of requests goes, and how long they are: histograms by model.

Phases are as the client sees them: what comes back over the network is in them, and so is what an attempt that was lost
has taken.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Histogram

from frontend_svc.requests.events import Finished
from frontend_svc.requests.sessions.session import Session
from signalbox.telemetry import attributes as names

_PHASE_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_LENGTH_TOKENS = (16, 64, 256, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144, 1_048_576)


class PhaseHistograms:
    """Queue, prefill, decode, lengths."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def histogram(name: str, documentation: str, buckets: Sequence[float]) -> Histogram:
            return Histogram(name, documentation, [names.LABEL_MODEL], buckets=buckets, registry=registry)

        self._queue_s = histogram(
            names.METRIC_QUEUE_SECONDS, "From acceptance until a worker has the request.", _PHASE_S
        )
        self._prefill_s = histogram(names.METRIC_PREFILL_SECONDS, "From there to the first output.", _PHASE_S)
        self._decode_s = histogram(
            names.METRIC_DECODE_SECONDS, "From the first output to the last one.", _PHASE_S
        )
        self._prompt = histogram(
            names.METRIC_PROMPT_LENGTH, "Tokens of the prompts of ended requests.", _LENGTH_TOKENS
        )
        self._output = histogram(
            names.METRIC_OUTPUT_LENGTH, "Output tokens of ended requests.", _LENGTH_TOKENS
        )

    def observe(self, session: Session, finished: Finished) -> None:
        """A request ended. A phase that it has not come to is not observed."""
        model = session.request.model
        if session.placed_s:
            self._queue_s.labels(model).observe(session.placed_s - session.arrival_s)
        if session.placed_s and session.first_output_s:
            self._prefill_s.labels(model).observe(max(session.first_output_s - session.placed_s, 0))
        if session.last_output_s > session.first_output_s:
            self._decode_s.labels(model).observe(session.last_output_s - session.first_output_s)
        self._prompt.labels(model).observe(finished.num_prompt_tokens)
        self._output.labels(model).observe(finished.num_output_tokens)
