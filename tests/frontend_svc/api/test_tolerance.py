"""What clients of OpenAI and vLLM send is served where it changes nothing, and refused by name where it would."""

from __future__ import annotations

import json
import logging
from typing import Any

import httpx
import pytest

from frontend_svc.api.http import body as http_body
from frontend_svc.server import Frontend
from frontend_svc.text.tokenizer import Tokenizer
from tests.frontend_svc.guarded import KeyRing, Start
from tests.frontend_svc.helpers import STOP, character_ids, choices_of, serve_text
from tests.frontend_svc.scripted_cluster import Cluster

USER = [{"role": "user", "content": "hi"}]
CHAT: dict[str, Any] = {"model": "toy", "messages": USER}
COMPLETION: dict[str, Any] = {"model": "toy", "prompt": "the fox"}
HARMLESS: dict[str, Any] = {
    "top_k": -1,
    "use_beam_search": False,
    "length_penalty": 1.0,
    "early_stopping": False,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "include_stop_str_in_output": False,
    "allowed_token_ids": None,
    "truncate_prompt_tokens": None,
    "return_token_ids": False,
    "return_tokens_as_token_ids": None,
    "kv_transfer_params": None,
    "vllm_xargs": {},
    "mm_processor_kwargs": None,
    "prompt_embeds": None,
    "logit_bias": None,
    "seed": None,
    "stop": None,
    "n": None,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "store": False,
    "service_tier": "auto",
    "session_id": "s",
    "prompt_cache_retention": "24h",
    "moderation": None,
    "a_field_of_tomorrow": None,
}
HARMLESS_CHAT = HARMLESS | {
    "echo": False,
    "verbosity": "medium",
    "chat_template": None,
    "chat_template_kwargs": None,
    "documents": None,
    "reasoning_effort": None,
    "function_call": "auto",
    "functions": None,
    "tools": None,
    "tool_choice": None,
    "modalities": ["text"],
    "top_logprobs": 0,
}


async def test_what_changes_nothing_is_served(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_text(cluster, tokenizer, " fox")
    for path, body in (
        ("completions", COMPLETION | HARMLESS | {"suffix": "", "echo": False, "best_of": None}),
        ("chat/completions", CHAT | HARMLESS_CHAT),
    ):
        answer = await http.post(f"/v1/{path}", json=body)
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("use_beam_search", True),
        ("length_penalty", 0.5),
        ("allowed_token_ids", []),
        ("skip_special_tokens", "no"),
        ("return_token_offsets", True),
        ("repetition_detection", {"max_pattern_size": 3}),
        ("chat_template", "{{ 1 }}"),
        ("truncate_prompt_tokens", 0),
        ("top_k", -2),
        ("a_field_of_tomorrow", 1),
    ],
)
async def test_what_would_change_the_output_is_refused_by_name(
    http: httpx.AsyncClient, field: str, value: Any
) -> None:
    answer = await http.post("/v1/chat/completions", json=CHAT | {field: value})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


async def test_unknown_fields_can_be_let_pass_with_a_word(
    cluster: Cluster, tokenizer: Tokenizer, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    serve_text(cluster, tokenizer, " fox")
    http_body._told.clear()
    frontend = await start(unknown_fields="warn", key_file=None)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{frontend.http_port}") as http:
        odd = CHAT | {"messages": [USER[0] | {"mood": 1}], "tomorrow": 2}
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                assert (await http.post("/v1/chat/completions", json=odd)).status_code == 200
        told = [record.getMessage() for record in caplog.records if "not known here" in record.getMessage()]
        assert ["messages.mood" in line or "tomorrow" in line for line in told] == [True, True]
        known = await http.post("/v1/chat/completions", json=CHAT | {"use_beam_search": True})
        assert known.status_code == 400


async def test_a_stop_string_may_stay_in_the_text(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    cluster.serve(lambda payload: character_ids(tokenizer, "oneENDtwo"), STOP)
    for keep, text in ((False, "one"), (True, "oneEND")):
        body = COMPLETION | {"stop": ["END"], "include_stop_str_in_output": keep}
        answer = (await http.post("/v1/completions", json=body)).json()
        assert answer["choices"][0]["text"] == text
        streamed = choices_of(await http.post("/v1/completions", json=body | {"stream": True}))
        assert "".join(choice["text"] for choice in streamed) == text


async def test_what_ended_an_output_is_told(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    ids = character_ids(tokenizer, "oneEND")
    cluster.serve(lambda payload: ids, STOP)
    for path, base in (("completions", COMPLETION), ("chat/completions", CHAT)):
        for options, reason in (
            ({"stop": ["END"]}, "END"),
            ({"stop_token_ids": [ids[-1]]}, ids[-1]),
            ({}, None),
        ):
            whole = (await http.post(f"/v1/{path}", json=base | options)).json()
            assert whole["choices"][0]["stop_reason"] == reason
            assert whole["system_fingerprint"].startswith("fp_")
            chunks = choices_of(await http.post(f"/v1/{path}", json=base | options | {"stream": True}))
            assert [chunk["stop_reason"] for chunk in chunks if chunk["finish_reason"]] == [reason]


async def test_a_prompt_is_cut_from_its_beginning(
    http: httpx.AsyncClient, cluster: Cluster, frontend: Frontend
) -> None:
    prompts: list[list[int]] = []

    def answer(payload: Any) -> list[int]:
        prompts.append(memoryview(payload.token_ids).cast("i").tolist())
        return [5]

    cluster.serve(answer, STOP)
    room = frontend.directory.models[0].max_tokens
    for tokens, most, kept in (
        ([5, 6, 7, 8], 2, [7, 8]),
        ([5, 6], 3, [5, 6]),
        ([*range(5, 9)] * 100, -1, ([*range(5, 9)] * 100)[-(room - 4) :]),
    ):
        body = {"prompt": tokens, "max_tokens": 4, "truncate_prompt_tokens": most}
        assert (await http.post("/v1/completions", json=body)).status_code == 200
        assert prompts[-1] == kept


async def test_a_request_may_be_named_in_its_body(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_text(cluster, tokenizer, " fox")
    for path, body in (("completions", COMPLETION), ("chat/completions", CHAT)):
        answer = await http.post(f"/v1/{path}", json=body | {"request_id": f"mine-{path}"})
        assert (answer.json()["id"], answer.headers["x-request-id"]) == (f"mine-{path}", f"mine-{path}")
        foreign = await http.post(f"/v1/{path}", json=body | {"request_id": "größe 🚂"})
        assert (foreign.json()["id"], foreign.status_code) == ("größe 🚂", 200)
        assert foreign.headers["x-request-id"] == r"gr\xf6\xdfe \U0001f682"


# ---- headers


async def test_each_answer_has_the_id_of_its_request(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_text(cluster, tokenizer, " fox")
    answer = await http.post("/v1/completions", json=COMPLETION)
    assert answer.headers["x-request-id"] == answer.json()["id"]
    streamed = await http.post("/v1/chat/completions", json=CHAT | {"stream": True})
    assert json.loads(streamed.text.split("\n\n")[0][6:])["id"] == streamed.headers["x-request-id"]
    named = await http.post("/v1/completions", json=COMPLETION, headers={"x-request-id": "mine"})
    assert (named.headers["x-request-id"], named.json()["id"]) == ("mine", "mine")
    refused = await http.post("/v1/completions", json={"prompt": 1}, headers={"x-request-id": "wrong-one"})
    assert (refused.status_code, refused.headers["x-request-id"]) == (400, "wrong-one")
    nowhere = await http.get("/nowhere", headers={"x-request-id": "x" * 500})
    assert nowhere.headers["x-request-id"].startswith("req_")


async def test_limits_of_a_key_are_told(
    start: Start, cluster: Cluster, tokenizer: Tokenizer, ring: KeyRing
) -> None:
    count = serve_text(cluster, tokenizer, " fox")
    ring.add("acme", requests_per_minute=10, tokens_per_minute=1000)
    frontend = await start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{frontend.http_port}") as http:
        answer = await http.post("/v1/completions", json=COMPLETION, headers=ring.headers("acme"))
        told = {name: value for name, value in answer.headers.items() if name.startswith("x-ratelimit-")}
        assert (told["x-ratelimit-limit-requests"], told["x-ratelimit-remaining-requests"]) == ("10", "9")
        left = 1000 - answer.json()["usage"]["total_tokens"]
        assert left <= int(told["x-ratelimit-remaining-tokens"]) <= left + count
        assert told["x-ratelimit-reset-requests"].endswith("s")
        other = await http.post("/v1/completions", json=COMPLETION, headers=ring.headers("other"))
        assert not [name for name in other.headers if name.startswith("x-ratelimit-")]
        nobody = await http.post("/v1/completions", json=COMPLETION)
        assert (nobody.status_code, "x-request-id" in nobody.headers) == (401, True)
        assert nobody.json()["error"]["code"] == "invalid_api_key"


async def test_pages_of_allowed_origins_may_call(start: Start) -> None:
    asks = {
        "origin": "https://ui.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    for origins, status, allowed in (
        ("https://ui.example, https://b.example", 200, "https://ui.example"),
        ("*", 200, "*"),
        ("https://b.example", 400, None),
        ("", 401, None),
    ):
        frontend = await start(allowed_origins=origins)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{frontend.http_port}") as http:
            answer = await http.options("/v1/chat/completions", headers=asks)
            assert answer.status_code == status
            assert answer.headers.get("access-control-allow-origin") == allowed


async def test_a_model_that_is_not_there(http: httpx.AsyncClient) -> None:
    answer = await http.get("/v1/models/gpt-9")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


async def test_ping_and_load(http: httpx.AsyncClient) -> None:
    assert (await http.get("/ping")).status_code == (await http.post("/ping")).status_code == 200
    assert (await http.get("/load")).json() == {"server_load": 0}
