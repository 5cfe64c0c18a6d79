"""What keys have used is counted by key and tenant, and their number is bounded."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from frontend_svc.key_usage import KeyUsage
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
    usage = KeyUsage(registry, max_keys=2)
    for key_id in ("a", "b", "c", "a", "d", ""):
        usage.add(request_of(key_id), FINISHED)

    def value(tenant: str, key_id: str) -> float | None:
        labels = {"tenant": tenant, "key_id": key_id}
        return registry.get_sample_value("signalbox_frontend_key_requests_total", labels)

    assert [value("acme", key_id) for key_id in "abcd"] == [2, 1, None, None]
    assert value("other", "other") == 2
    tokens = {"tenant": "other", "key_id": "other", "gen_ai_token_type": "input"}
    assert registry.get_sample_value("signalbox_frontend_key_tokens_total", tokens) == 6


async def test_each_key_has_its_own_count(
    start: Start, cluster: Cluster, tokenizer: Tokenizer, ring: KeyRing
) -> None:
    frontend = await start(metrics_need_key=False)
    serve_text(cluster, tokenizer, "x")
    for name in ("acme", "acme", "other"):
        assert (await ask(frontend, ring.headers(name))).status_code == 200
    page = frontend.metrics.render()[0].decode()
    for name, count in (("acme", 2), ("other", 1)):
        labels = f'key_id="{ring.keys[name].key_id}",tenant="{name}"'
        assert f"signalbox_frontend_key_requests_total{{{labels}}} {count}.0" in page
