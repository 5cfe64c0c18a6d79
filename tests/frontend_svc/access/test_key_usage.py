"""What keys have used is counted by key and tenant, and their number is bounded."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from frontend_svc.clock import loop_time
from frontend_svc.key_usage import SILENT_S, KeyUsage
from frontend_svc.requests.events import Finished
from frontend_svc.requests.request import CheckedRequest
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.protocol.enums import FinishReason
from tests.frontend_svc.guarded import KeyRing, Start, ask
from tests.frontend_svc.helpers import serve_text
from tests.frontend_svc.scripted_cluster import Cluster

FINISHED = Finished(FinishReason.STOP, 3, 2, 0)


def request_of(key_id: str) -> CheckedRequest:
    return CheckedRequest("r", "toy", b"", 3, 2, 1, {}, tenant="acme", key_id=key_id)


def test_keys_beyond_the_bound_are_counted_together() -> None:
    registry = CollectorRegistry()
    usage = KeyUsage(registry, max_keys=2, clock=lambda: 0.0)
    for key_id in ("a", "b", "c", "a", "d", ""):
        usage.add(request_of(key_id), FINISHED)

    def value(tenant: str, key_id: str) -> float | None:
        labels = {"tenant": tenant, "key_id": key_id}
        return registry.get_sample_value("signalbox_frontend_key_requests_total", labels)

    assert [value("acme", key_id) for key_id in "abcd"] == [2, 1, None, None]
    assert value("other", "other") == 2
    tokens = {"tenant": "other", "key_id": "other", "gen_ai_token_type": "input"}
    assert registry.get_sample_value("signalbox_frontend_key_tokens_total", tokens) == 6


class Counted:
    """Usage over a clock that the test sets."""

    def __init__(self, max_keys: int) -> None:
        self.now_s = 0.0
        self._registry = CollectorRegistry()
        self.usage = KeyUsage(self._registry, max_keys, silent_s=10, clock=lambda: self.now_s)

    def use(self, now_s: float, *key_ids: str) -> None:
        self.now_s = now_s
        for key_id in key_ids:
            self.usage.add(request_of(key_id), FINISHED)

    def shown(self) -> dict[str, float]:
        """Ended requests by key, as the next scrape shows them; tokens have to have the same keys."""
        self.usage.expire()
        samples = [sample for family in self._registry.collect() for sample in family.samples]
        by_name: dict[str, dict[str, float]] = {}
        for sample in samples:
            by_name.setdefault(sample.name, {})[sample.labels["key_id"]] = sample.value
        assert len({frozenset(values) for values in by_name.values()}) <= 1, by_name
        return by_name.get("signalbox_frontend_key_requests_total", {})


def test_a_silent_key_has_no_series_any_more() -> None:
    counted = Counted(max_keys=3)
    counted.use(0, "a", "b")
    counted.use(6, "a")
    counted.now_s = 9.9
    assert counted.shown() == {"a": 2, "b": 1}
    counted.now_s = 10
    assert counted.shown() == {"a": 2}, "the order is by the last request, not by the first"
    counted.now_s = 16
    assert counted.shown() == {}
    counted.use(17, "b")
    assert counted.shown() == {"b": 1}, "a key that comes back begins anew"


def test_a_place_is_free_again_without_a_scrape() -> None:
    counted = Counted(max_keys=2)
    counted.use(0, "a", "b")
    counted.use(5, "c", "b")
    counted.use(10, "c")
    assert counted.shown() == {"b": 2, "c": 1, "other": 1}


async def test_each_key_has_its_own_count_until_it_is_silent(
    start: Start, cluster: Cluster, tokenizer: Tokenizer, ring: KeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    frontend = await start(metrics_need_key=False)
    serve_text(cluster, tokenizer, "x")
    for name in ("acme", "acme", "other"):
        assert (await ask(frontend, ring.headers(name))).status_code == 200
    page = frontend.metrics.render()[0].decode()
    for name, count in (("acme", 2), ("other", 1)):
        labels = f'key_id="{ring.keys[name].key_id}",tenant="{name}"'
        assert f"signalbox_frontend_key_requests_total{{{labels}}} {count}.0" in page
    later_s = loop_time() + SILENT_S
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: later_s)
    page = frontend.metrics.render()[0].decode()
    monkeypatch.undo()
    assert "key_id=" not in page
    assert 'requests_total{gen_ai_request_model="toy",outcome="stop"} 3.0' in page
