"""The OpenAI-compatible face, over real sockets and against a scripted cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest

from frontend_svc.server import Frontend
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.v1 import generation_pb2
from tests.frontend_svc.helpers import character_ids, choices_of, make_logprobs, serve_text, until
from tests.frontend_svc.scripted_cluster import Cluster, Row

COMPLETION = {"model": "toy", "prompt": "the fox"}
GEN_AI = (
    '{gen_ai_operation_name="text_completion",gen_ai_provider_name="signalbox",gen_ai_request_model="toy"}'
)
JSON = {"content-type": "application/json"}
CHAT = {"model": "toy", "messages": [{"role": "user", "content": "hi"}]}
STOP = generation_pb2.FINISH_REASON_STOP


# ---- answers


async def test_completion(sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer) -> None:
    count = serve_text(cluster, tokenizer, " fox 🚂")
    answer = await sdk.completions.create(model="toy", prompt="the quick brown")
    assert answer.id.startswith("cmpl-")
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == (" fox 🚂", "stop")
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(tokenizer.fast.encode("the quick brown").ids)
    assert answer.usage.completion_tokens == count


async def test_streamed_completion(sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer) -> None:
    count = serve_text(cluster, tokenizer, " fox 🚂 jumps")
    stream = await sdk.completions.create(
        model="toy", prompt="the", stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == " fox 🚂 jumps"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert (chunks[-1].choices, chunks[0].usage) == ([], None)
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == count


async def test_chat(sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer) -> None:
    serve_text(cluster, tokenizer, "größe")
    answer = await sdk.chat.completions.create(
        model="toy",
        messages=[
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        ],
    )
    assert (answer.choices[0].message.content, answer.choices[0].message.role) == ("größe", "assistant")
    submit = await cluster.scheduler.next("submit")
    prompt = "<bos><|system|>be brief\n<|user|>hi\n<|assistant|>"
    assert submit.meta.num_prompt_tokens == len(tokenizer.fast.encode(prompt).ids)
    assert submit.meta.max_tokens == 200 - submit.meta.num_prompt_tokens, "all that fits"


async def test_streamed_chat(sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer) -> None:
    serve_text(cluster, tokenizer, "größe 🚂")
    stream = await sdk.chat.completions.create(
        model="toy", messages=[{"role": "user", "content": "hi"}], stream=True
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "größe 🚂"
    assert chunks[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    ("path", "body"), [("completions", COMPLETION | {"prompt": ["the", "fox"]}), ("chat/completions", CHAT)]
)
async def test_a_client_may_name_its_request(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer, path: str, body: dict[str, Any]
) -> None:
    serve_text(cluster, tokenizer, "x")
    answer = await http.post(f"/v1/{path}", json=body, headers={"x-request-id": "mine-7"})
    assert answer.json()["id"] == "mine-7"
    names = [(await cluster.scheduler.next("submit")).ref.request_id for _ in body.get("prompt", [1])]
    assert names == ["mine-7", "mine-7:1"][: len(names)]


async def test_a_name_that_is_too_long(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/completions", json=COMPLETION, headers={"x-request-id": "x" * 300})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "x-request-id")


async def test_an_empty_name_is_none(http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer) -> None:
    serve_text(cluster, tokenizer, "x")
    body = {"prompt": ["the", "the"]}
    answer = await http.post("/v1/completions", json=body, headers={"x-request-id": ""})
    names = [(await cluster.scheduler.next("submit")).ref.request_id for _ in range(2)]
    assert answer.json()["id"] and answer.json()["id"] in names
    assert not any(name.startswith(":") for name in names)


async def test_default_of_completions_is_16(http: httpx.AsyncClient, cluster: Cluster) -> None:
    cluster.serve(lambda payload: [9])
    await http.post("/v1/completions", json=COMPLETION)
    assert (await cluster.scheduler.next("submit")).meta.max_tokens == 16


async def test_forms_of_prompt(http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer) -> None:
    serve_text(cluster, tokenizer, "x")
    for prompt in ("the", ["the"], [5, 6], [[5, 6]]):
        answer = await http.post("/v1/completions", json={"prompt": prompt})
        assert answer.status_code == 200, answer.text


async def test_stop_string(http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer) -> None:
    ids = character_ids(tokenizer, "abENDcd")
    cluster.serve(lambda payload: ids, generation_pb2.FINISH_REASON_LENGTH)
    answer = (await http.post("/v1/completions", json=COMPLETION | {"stop": "END"})).json()
    assert (answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]) == ("ab", "stop")
    assert answer["usage"]["completion_tokens"] == 5


async def test_sampling_parameters_arrive(http: httpx.AsyncClient, cluster: Cluster) -> None:
    cluster.serve(lambda payload: [9])
    given = {
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 4,
        "min_p": 0.25,
        "seed": -1,
        "min_tokens": 1,
        "stop_token_ids": [3],
        "ignore_eos": True,
        "repetition_penalty": 1.5,
        "frequency_penalty": 0.5,
        "presence_penalty": -0.5,
        "logit_bias": {"7": -100},
    }
    labels = {"user": "u", "priority": 5, "cache_salt": "s", "n": 1, "echo": False, "response_format": None}
    await http.post("/v1/completions", json=COMPLETION | given | labels)
    submit = await cluster.scheduler.next("submit")
    sampling = generation_pb2.RequestPayload.FromString(submit.payload).sampling
    assert (sampling.temperature, sampling.top_k, sampling.seed) == (0, 4, 2**64 - 1)
    assert (sampling.ignore_eos, list(sampling.stop_token_ids)) == (True, [3])
    assert dict(sampling.logit_bias) == {7: -100}
    assert submit.meta.priority == 5


@pytest.mark.parametrize("stream", [False, True])
async def test_completion_logprobs(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer, stream: bool
) -> None:
    a, b = character_ids(tokenizer, "ab")
    body = COMPLETION | {"logprobs": 2, "stream": stream}
    answering = asyncio.create_task(http.post("/v1/completions", json=body))
    attempt = (await cluster.scheduler.next("submit")).ref.attempt
    cluster.worker.emit(Row(attempt, 0, [a], logprobs=[make_logprobs(a, b)]))
    cluster.worker.emit(Row(attempt, 1, [b], STOP, logprobs=[make_logprobs(b, a)]))
    choices = choices_of(await answering)
    made = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    assert [token for item in made for token in item["tokens"]] == ["a", "b"]
    assert [offset for item in made for offset in item["text_offset"]] == [0, 1]
    assert [top for item in made for top in item["top_logprobs"]] == [
        {"a": -0.5, "b": -1.5},
        {"b": -0.5, "a": -1.5},
    ]


async def test_chat_logprobs(sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer) -> None:
    a, b = character_ids(tokenizer, "ab")
    answering = asyncio.create_task(
        sdk.chat.completions.create(
            model="toy", messages=[{"role": "user", "content": "hi"}], logprobs=True, top_logprobs=2
        )
    )
    attempt = (await cluster.scheduler.next("submit")).ref.attempt
    cluster.worker.emit(Row(attempt, 0, [a], STOP, logprobs=[make_logprobs(a, b)]))
    logprobs = (await answering).choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert [(item.token, item.bytes, item.logprob) for item in logprobs.content] == [("a", [97], -0.5)]
    assert [item.token for item in logprobs.content[0].top_logprobs] == ["a", "b"]


# ---- refusals


BAD_REQUESTS: list[tuple[str, dict[str, Any], str]] = [
    ("completions", COMPLETION | {"temperature": -1}, "temperature"),
    ("completions", COMPLETION | {"temperature": "hot"}, "temperature"),
    ("completions", COMPLETION | {"temprature": 1}, "temprature"),
    ("completions", {"model": "toy"}, "prompt"),
    ("completions", COMPLETION | {"prompt": ""}, "prompt"),
    ("completions", COMPLETION | {"prompt": []}, "prompt"),
    ("completions", COMPLETION | {"prompt": [1, "a"]}, "prompt[1]"),
    ("completions", COMPLETION | {"prompt": ["a", ""]}, "prompt"),
    ("completions", COMPLETION | {"prompt": [[1], []]}, "prompt"),
    ("completions", COMPLETION | {"prompt": ["a"] * 600, "n": 2}, "prompt"),
    ("completions", COMPLETION | {"prompt": [10**6]}, "prompt"),
    ("completions", COMPLETION | {"prompt": [1] * 200}, "prompt"),
    ("completions", COMPLETION | {"max_tokens": 0}, "max_tokens"),
    ("completions", COMPLETION | {"max_tokens": 201}, "max_tokens"),
    ("completions", COMPLETION | {"max_tokens": True}, "max_tokens"),
    ("completions", COMPLETION | {"n": 0}, "n"),
    ("completions", COMPLETION | {"n": 129}, "n"),
    ("completions", COMPLETION | {"n": 3, "best_of": 2}, "best_of"),
    ("completions", COMPLETION | {"best_of": 21}, "best_of"),
    ("completions", COMPLETION | {"best_of": 2, "stream": True}, "best_of"),
    ("completions", COMPLETION | {"echo": True, "logprobs": 1, "n": 2, "stream": True}, "echo"),
    ("completions", COMPLETION | {"suffix": "x"}, "suffix"),
    ("completions", COMPLETION | {"logprobs": 21}, "logprobs"),
    ("completions", COMPLETION | {"prompt_logprobs": 21}, "prompt_logprobs"),
    ("completions", COMPLETION | {"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    ("completions", COMPLETION | {"bad_words": [""]}, "bad_words"),
    ("completions", COMPLETION | {"response_format": {"type": "xml"}}, "response_format"),
    (
        "completions",
        COMPLETION | {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        "response_format.json_schema.schema",
    ),
    ("completions", COMPLETION | {"guided_json": {}, "guided_regex": "a"}, "guided_regex"),
    ("completions", COMPLETION | {"guided_choice": []}, "guided_choice"),
    ("completions", COMPLETION | {"structured_outputs": {}}, "structured_outputs"),
    ("completions", COMPLETION | {"structured_outputs": {"xml": ""}}, "structured_outputs.xml"),
    ("completions", COMPLETION | {"stop": ["a"] * 17}, "stop"),
    ("completions", COMPLETION | {"logit_bias": {"x": 1}}, "logit_bias"),
    ("completions", COMPLETION | {"stream_options": {"include_usage": True}}, "stream_options"),
    ("completions", COMPLETION | {"stream": True, "stream_options": {"x": 1}}, "stream_options.x"),
    ("completions", COMPLETION | {"priority": 1001}, "priority"),
    ("completions", COMPLETION | {"seed": 2**63, "min_tokens": 17}, "min_tokens"),
    ("chat/completions", {"model": "toy", "messages": []}, "messages"),
    ("chat/completions", CHAT | {"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
    ("chat/completions", CHAT | {"messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
    (
        "chat/completions",
        CHAT | {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        "messages[0].content[0].type",
    ),
    ("chat/completions", CHAT | {"messages": [{"role": "assistant", "content": "x"}]}, "messages"),
    ("chat/completions", CHAT | {"tools": [{"type": "function"}]}, "tools[0].function"),
    ("chat/completions", CHAT | {"tool_choice": "auto"}, "tool_choice"),
    ("chat/completions", CHAT | {"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    ("chat/completions", CHAT | {"n": 0}, "n"),
    ("chat/completions", CHAT | {"top_logprobs": 2}, "top_logprobs"),
    ("chat/completions", CHAT | {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ("chat/completions", CHAT | {"max_completion_tokens": 0}, "max_completion_tokens"),
    ("chat/completions", CHAT | {"max_tokens": 1, "max_completion_tokens": 2}, "max_completion_tokens"),
]


async def test_bad_requests_name_their_field(http: httpx.AsyncClient) -> None:
    for path, body, param in BAD_REQUESTS:
        answer = await http.post(f"/v1/{path}", json=body)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, param), (body, error)
        assert error["type"] == "invalid_request_error"
        assert error["message"]


async def test_bodies_that_are_no_request(http: httpx.AsyncClient) -> None:
    for data in (b"{", b'{"prompt": "\xff"}', b"[]", b'"x"', b"", b'{"temperature": NaN}'):
        answer = await http.post("/v1/completions", content=data, headers=JSON)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "InvalidRequestError"), data


async def test_large_bodies(http: httpx.AsyncClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 10_000

    for content in (b" " * 200_000, chunks()):
        answer = await http.post("/v1/completions", content=content, headers=JSON)
        assert answer.status_code == 413
        assert "100000 bytes" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nowhere", 404), ("GET", "/v1/completions", 405)]
)
async def test_wrong_paths_and_methods(http: httpx.AsyncClient, method: str, path: str, status: int) -> None:
    answer = await http.request(method, path)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_rejection_is_a_status(http: httpx.AsyncClient, cluster: Cluster, stream: bool) -> None:
    cluster.scheduler.on_operation = lambda operation: cluster.scheduler.reject(
        operation.submit.ref, "ResourceExhaustedError", "the queue is full"
    )
    answer = await http.post("/v1/completions", json=COMPLETION | {"stream": stream})
    assert (answer.status_code, answer.json()["error"]["type"]) == (429, "rate_limit_error")


async def test_an_error_in_mid_stream(sdk: openai.AsyncOpenAI, cluster: Cluster) -> None:
    stream = await_stream(sdk)
    ref = (await cluster.scheduler.next("submit")).ref
    error = generation_pb2.Error(code="InternalError", message="the model failed")
    cluster.worker.emit(Row(ref.attempt, 0, [9], generation_pb2.FINISH_REASON_ERROR, error))
    with pytest.raises(openai.APIError, match="the model failed"):
        async for _ in await stream:
            pass


async def test_an_error_of_a_whole_answer(http: httpx.AsyncClient, cluster: Cluster) -> None:
    answering = asyncio.create_task(http.post("/v1/completions", json=COMPLETION))
    ref = (await cluster.scheduler.next("submit")).ref
    error = generation_pb2.Error(code="InternalError", message="the model failed")
    cluster.worker.emit(Row(ref.attempt, 0, [9], generation_pb2.FINISH_REASON_ERROR, error))
    answer = await answering
    assert (answer.status_code, answer.json()["error"]["message"]) == (500, "the model failed")


# ---- clients that leave


def await_stream(sdk: openai.AsyncOpenAI) -> asyncio.Task[Any]:
    return asyncio.create_task(sdk.completions.create(model="toy", prompt="the", stream=True))


async def test_leaving_a_stream_cancels(
    sdk: openai.AsyncOpenAI, cluster: Cluster, frontend: Frontend
) -> None:
    creating = await_stream(sdk)
    ref = (await cluster.scheduler.next("submit")).ref
    cluster.worker.emit(Row(ref.attempt, 0, [9]))
    stream = await creating
    await stream.close()
    assert (await cluster.scheduler.next("cancel")).ref == ref
    assert len(frontend.table) == 0


@pytest.mark.parametrize("placed", [False, True])
async def test_leaving_a_whole_answer_cancels(
    http: httpx.AsyncClient, cluster: Cluster, frontend: Frontend, placed: bool
) -> None:
    answering = asyncio.create_task(http.post("/v1/completions", json=COMPLETION))
    ref = (await cluster.scheduler.next("submit")).ref
    if placed:
        cluster.worker.emit(Row(ref.attempt, 0, [9]))
        await until(lambda: any(len(session.output) for session in frontend.table))
    answering.cancel()
    assert (await cluster.scheduler.next("cancel")).ref == ref
    await until(lambda: len(frontend.table) == 0)


async def test_a_client_that_does_not_read_is_paused(
    frontend: Frontend, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", frontend.http_port, limit=1024)
    body = json.dumps(CHAT | {"stream": True, "logprobs": True}).encode()
    lines = ("POST /v1/chat/completions HTTP/1.1", "host: localhost", "content-type: application/json")
    head = "\r\n".join((*lines, f"content-length: {len(body)}", "", "")).encode()
    writer.write(head + body)
    ref = (await cluster.scheduler.next("submit")).ref
    # Many kilobytes per token fill every buffer between the frontend and this client.
    wide = make_logprobs(*[tokenizer.fast.encode("🚂").ids[0]] * 1000)
    paused, start = None, 0
    while paused is None and start < 4000:
        for _ in range(50):
            cluster.worker.emit(Row(ref.attempt, start, [9], logprobs=[wide]))
            start += 1
        await asyncio.sleep(0.02)
        if not cluster.scheduler.operations.empty():
            paused = await cluster.scheduler.next("pause")
    assert paused is not None
    assert paused.ref == ref
    while cluster.scheduler.operations.empty():
        await reader.read(1 << 20)
    assert (await cluster.scheduler.next("unpause")).ref == ref
    writer.close()


# ---- the rest


async def test_models(sdk: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in sdk.models.list()] == ["toy"]


async def test_health_and_readiness(http: httpx.AsyncClient, cluster: Cluster, frontend: Frontend) -> None:
    assert (await http.get("/health")).status_code == 200
    assert (await http.get("/ready")).status_code == 200
    await cluster.worker.server.grpc.stop(0)
    await until(lambda: not frontend.is_ready)
    assert (await http.get("/health")).status_code == 200
    assert (await http.get("/ready")).status_code == 503


async def test_metrics(http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer) -> None:
    count = serve_text(cluster, tokenizer, " fox jumps")
    await http.post("/v1/completions", json=COMPLETION)
    await http.post("/v1/completions", json=COMPLETION | {"prompt": ""})
    lines = (await http.get("/metrics")).text.splitlines()
    prompt = len(tokenizer.fast.encode("the fox").ids)
    for line in (
        'signalbox_frontend_requests_total{gen_ai_request_model="toy",outcome="stop"} 1.0',
        'signalbox_frontend_requests_total{gen_ai_request_model="",outcome="InvalidRequestError"} 1.0',
        f"signalbox_frontend_prompt_tokens_total {float(prompt)}",
        f"signalbox_frontend_output_tokens_total {float(count)}",
        f"gen_ai_server_time_to_first_token_seconds_count{GEN_AI} 1.0",
        f"gen_ai_server_time_per_output_token_seconds_count{GEN_AI} 1.0",
        f"signalbox_frontend_inter_token_seconds_count {float(count - 1)}",
        "signalbox_frontend_open_sessions 0.0",
    ):
        assert line in lines
