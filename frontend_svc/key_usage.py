"""What each key and tenant has used: counters with a bounded number of labels."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from frontend_svc.clock import Clock, loop_time
from frontend_svc.requests.events import Finished
from frontend_svc.requests.request import CheckedRequest
from signalbox.telemetry import attributes as names

MAX_KEYS = 1000
"""Keys that have counters of their own; what others use is counted together."""
SILENT_S = 25 * 3600.0
"""A key of which no request has ended for so long has no counters any more, in seconds: what is used once a day keeps
them."""
OTHER = ("other", "other")
_TOKEN_TYPES = ("input", "output")


class KeyUsage:
    """Requests and tokens by tenant and key. Without keys there is nothing to count by."""

    def __init__(
        self,
        registry: CollectorRegistry,
        max_keys: int = MAX_KEYS,
        silent_s: float = SILENT_S,
        clock: Clock = loop_time,
    ) -> None:
        by = [names.LABEL_TENANT, names.LABEL_KEY_ID]
        self._requests = Counter(names.METRIC_KEY_REQUESTS, "Ended requests by key.", by, registry=registry)
        self._tokens = Counter(
            names.METRIC_KEY_TOKENS,
            "Tokens of ended requests by key.",
            [*by, names.LABEL_TOKEN_TYPE],
            registry=registry,
        )
        self._max_keys, self._silent_s, self._clock = max_keys, silent_s, clock
        self._used_s: dict[tuple[str, str], float] = {}
        """When a request of each counted key ended last; the longest silent comes first."""

    def add(self, request: CheckedRequest, finished: Finished) -> None:
        """A request ended."""
        if request.key_id:
            labels = self._labels(request.tenant, request.key_id)
            self._requests.labels(*labels).inc()
            for token_type, count in zip(
                _TOKEN_TYPES, (finished.num_prompt_tokens, finished.num_output_tokens), strict=True
            ):
                self._tokens.labels(*labels, token_type).inc(count)

    def expire(self) -> None:
        """Forgets keys that are silent: at each scrape, so that none is shown longer than that."""
        if not self._used_s:
            return
        last_s = self._clock() - self._silent_s
        while self._used_s:
            labels, used_s = next(iter(self._used_s.items()))
            if used_s > last_s:
                return
            del self._used_s[labels]
            self._requests.remove(*labels)
            for token_type in _TOKEN_TYPES:
                self._tokens.remove(*labels, token_type)

    def _labels(self, tenant: str, key_id: str) -> tuple[str, str]:
        """The labels under which a request that ends now counts."""
        labels = (tenant, key_id)
        if self._used_s.pop(labels, None) is None and len(self._used_s) >= self._max_keys:
            self.expire()  # nobody may scrape
            if len(self._used_s) >= self._max_keys:
                return OTHER
        self._used_s[labels] = self._clock()
        return labels
