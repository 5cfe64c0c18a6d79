"""Keys that are not for everything, nor for ever, and what is logged of those that are refused (AK6)."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from frontend_svc.access.audit import AuditLog
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.errors import AuthenticationError, PermissionDeniedError
from signalbox.runtime.bounded_lines import MAX_LINES
from tests.frontend_svc.guarded import KeyRing, Start, ask, grpc_of, http_of
from tests.frontend_svc.helpers import serve_text
from tests.frontend_svc.scripted_cluster import Cluster


def lines_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(record) for record in caplog.records if record.name == "frontend_svc.access.audit"]


async def test_a_key_expires(start: Start, cluster: Cluster, tokenizer: Tokenizer, ring: KeyRing) -> None:
    now = datetime.now(UTC)
    ring.add("old", expires=(now - timedelta(seconds=1)).isoformat())
    ring.add("new", expires=(now + timedelta(days=1)).isoformat())
    guarded = await start()
    serve_text(cluster, tokenizer, "x")
    answer = await ask(guarded, ring.headers("old"))
    assert answer.status_code == 401 and "has expired" in answer.text
    async with grpc_of(guarded, ring.keys["old"].text) as client:
        with pytest.raises(AuthenticationError, match="has expired"):
            await client.generate("the").result()
    assert (await ask(guarded, ring.headers("new"))).status_code == 200


async def test_a_key_is_for_its_paths(
    start: Start, cluster: Cluster, tokenizer: Tokenizer, ring: KeyRing
) -> None:
    ring.add("narrow", paths=["/v1/completions"])
    ring.add("grpc", paths=["/signalbox.v1."])
    guarded = await start()
    serve_text(cluster, tokenizer, "x")
    assert (await ask(guarded, ring.headers("narrow"))).status_code == 200
    assert (await ask(guarded, ring.headers("grpc"))).status_code == 403
    async with http_of(guarded) as http:
        answer = await http.post("/tokenize", json={"prompt": "the"}, headers=ring.headers("narrow"))
        assert answer.status_code == 403
    async with grpc_of(guarded, ring.keys["narrow"].text) as client:
        with pytest.raises(PermissionDeniedError, match="not for /signalbox"):
            await client.generate("the").result()
    async with grpc_of(guarded, ring.keys["grpc"].text) as client:
        assert (await client.generate("the", max_tokens=1).result()).text == "x"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "the", "max_tokens": 1}),
        ("/v1/completions", {"prompt": "the", "max_tokens": 1, "model": "toy"}),
        ("/tokenize", {"prompt": "the"}),
        ("/detokenize", {"tokens": [1]}),
        ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "the"}]}),
    ],
)
async def test_a_key_is_for_its_models(
    start: Start, cluster: Cluster, tokenizer: Tokenizer, ring: KeyRing, path: str, body: dict[str, object]
) -> None:
    """A tokenizer and a template tell of a model as its answers do."""
    ring.add("narrow", models=["toy"])
    ring.add("other", tenant="other", models=["another"])
    guarded = await start()
    serve_text(cluster, tokenizer, "x")
    async with http_of(guarded) as http:
        assert (await http.post(path, json=body, headers=ring.headers("narrow"))).status_code == 200
        answer = await http.post(path, json=body, headers=ring.headers("other"))
    assert answer.status_code == 403 and "'toy'" in answer.text
    async with grpc_of(guarded, ring.keys["other"].text) as client:
        with pytest.raises(PermissionDeniedError, match="'toy'"):
            await client.tokenize("the")


async def test_refused_keys_and_admin_calls_are_logged(
    start: Start, ring: KeyRing, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ring.add("admin", tenant="operators", admin=True)
    guarded = await start(metrics_need_key=True)
    async with http_of(guarded) as http:
        for headers, status in ((ring.headers("acme"), 403), (ring.headers("admin"), 200)):
            assert (await http.get("/metrics", headers=headers)).status_code == status
        wrong = ring.keys["acme"].text[:-1] + "~"
        await http.get("/v1/models", headers={"authorization": f"Bearer {wrong}"})
        ring_key = ring.keys["acme"].text
        forged = ring_key[:-1] + ("a" if ring_key[-1] != "a" else "b")
        await http.get("/v1/models", headers={"authorization": f"Bearer {forged}"})
    refused, admin, wrong_line, forged_line = lines_of(caplog)
    assert (refused["message"], refused["outcome"]) == ("key refused", "PermissionDeniedError")
    assert (admin["message"], admin["key_id"], admin["path"]) == (
        "admin call",
        ring.keys["admin"].key_id,
        "/metrics",
    )
    assert (wrong_line["key_id"], wrong_line["outcome"]) == ("", "AuthenticationError")
    assert (forged_line["key_id"], forged_line["path"]) == (ring.keys["acme"].key_id, "/v1/models")
    assert forged_line["client"] == "127.0.0.1"
    assert ring_key[-20:-1] not in str([wrong_line, forged_line])


def test_lines_of_refused_keys_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever makes up keys does not fill the disk; what was left out is counted."""
    now = 0.0
    audit = AuditLog(lambda: now)
    for _ in range(3 * MAX_LINES):
        audit.refused("AuthenticationError", "", "/" * 10_000, "somewhere")
    assert len(lines_of(caplog)) == MAX_LINES
    now = 1.0
    audit.refused("AuthenticationError", "", "/", "somewhere")
    assert lines_of(caplog)[-1]["num_left_out"] == 2 * MAX_LINES
    assert max(len(line["path"]) for line in lines_of(caplog)) < 1000
