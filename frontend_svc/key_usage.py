"""What each key and tenant has used: counters with a bounded number of labels."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from frontend_svc.requests.events import Finished
from frontend_svc.requests.request import CheckedRequest
from signalbox.telemetry import attributes as names

MAX_KEYS = 1000
"""Keys that have counters of their own; what others use is counted together."""
OTHER = ("other", "other")


class KeyUsage:
    """Requests and tokens by tenant and key. Without keys there is nothing to count by."""

    def __init__(self, registry: CollectorRegistry, max_keys: int = MAX_KEYS) -> None:
        by = [names.LABEL_TENANT, names.LABEL_KEY_ID]
        self._requests = Counter(names.METRIC_KEY_REQUESTS, "Ended requests by key.", by, registry=registry)
        self._tokens = Counter(
            names.METRIC_KEY_TOKENS,
            "Tokens of ended requests by key.",
            [*by, names.LABEL_TOKEN_TYPE],
            registry=registry,
        )
        self._max_keys = max_keys
        self._known: set[tuple[str, str]] = set()

    def add(self, request: CheckedRequest, finished: Finished) -> None:
        """A request ended."""
        if request.key_id:
            labels = self._labels(request.tenant, request.key_id)
            self._requests.labels(*labels).inc()
            self._tokens.labels(*labels, "input").inc(finished.num_prompt_tokens)
            self._tokens.labels(*labels, "output").inc(finished.num_output_tokens)

    def _labels(self, tenant: str, key_id: str) -> tuple[str, str]:
        labels = (tenant, key_id)
        if labels not in self._known:
            if len(self._known) >= self._max_keys:
                return OTHER
            self._known.add(labels)
        return labels
