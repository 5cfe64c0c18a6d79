"""One line for each request that ends or is refused, with who called; of its prompt nothing, unless that is asked."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from frontend_svc.text.tokenizer import Tokenizer
from tests.frontend_svc.guarded import COMPLETION, KeyRing, Start, ask
from tests.frontend_svc.helpers import serve_text
from tests.frontend_svc.scripted_cluster import Cluster

TRACE = "ab" * 16
SENT = {"traceparent": f"00-{TRACE}-{'b' * 16}-01", "x-request-id": "mine"}


def lines_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(record) for record in caplog.records if record.name == "frontend_svc.request_log"]


async def test_an_end_tells_who_called_and_what_it_took(
    start: Start,
    cluster: Cluster,
    tokenizer: Tokenizer,
    ring: KeyRing,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    frontend = await start()
    serve_text(cluster, tokenizer, "x")
    answer = await ask(frontend, ring.headers("acme") | SENT)
    assert answer.status_code == 200, answer.text
    (line,) = lines_of(caplog)
    expected = {
        "message": "request ended",
        "request_id": "mine",
        "trace_id": TRACE,
        "key_id": ring.keys["acme"].key_id,
        "tenant": "acme",
        "worker_id": "w",
        "model": "toy",
        "operation": "text_completion",
        "outcome": "stop",
        "num_output_tokens": 1,
        "num_losses": 0,
    }
    assert {name: line[name] for name in expected} == expected
    assert 0 < line["first_token_s"] <= line["duration_s"]
    assert "prompt" not in line
    assert COMPLETION["prompt"] not in str(line)


async def test_a_refusal_tells_its_error_and_who_it_was(
    start: Start, ring: KeyRing, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    frontend = await start()
    assert (await ask(frontend, {})).status_code == 401
    assert (await ask(frontend, ring.headers("acme"), model="secret words")).status_code == 404
    nobody, acme = lines_of(caplog)
    assert (nobody["outcome"], nobody["key_id"]) == ("AuthenticationError", "")
    assert (acme["outcome"], acme["key_id"]) == ("UnknownModelError", ring.keys["acme"].key_id)
    assert "secret" not in f"{nobody}{acme}"


@pytest.mark.parametrize("wanted", ["off", "prompts"])
async def test_the_operator_chooses(
    start: Start,
    cluster: Cluster,
    tokenizer: Tokenizer,
    ring: KeyRing,
    caplog: pytest.LogCaptureFixture,
    wanted: str,
) -> None:
    caplog.set_level(logging.INFO)
    frontend = await start(log_requests=wanted)
    serve_text(cluster, tokenizer, "x")
    await ask(frontend, ring.headers("acme"))
    assert [line["prompt"] for line in lines_of(caplog)] == (
        [] if wanted == "off" else [COMPLETION["prompt"]]
    )
