"""Responses, embeddings, tokens, single models, time limits: each over real sockets, against a scripted cluster."""

from __future__ import annotations

import asyncio
from array import array
from typing import Any

import grpc
import httpx
import openai
import pytest

from frontend_svc.server import Frontend
from frontend_svc.text.tokenizer import Tokenizer
from signalbox import __version__
from signalbox.client import Client
from signalbox.errors import InvalidRequestError
from signalbox.v1 import frontend_pb2, generation_pb2
from signalbox.v1.frontend_pb2_grpc import GenerationServiceStub
from tests.frontend_svc.helpers import STOP, until
from tests.frontend_svc.scripted_cluster import Cluster, Row

LENGTH = generation_pb2.FINISH_REASON_LENGTH


# ---- embeddings


def serve_vectors(cluster: Cluster) -> None:
    """Answers every pooling request with [its number of prompt tokens, 0.5]."""

    def answer(operation: Any) -> None:
        if operation.WhichOneof("operation") == "submit":
            submit = operation.submit
            assert submit.meta.kind == generation_pb2.REQUEST_KIND_POOLING
            cluster.scheduler.place(submit.ref)
            vector = array("f", [submit.meta.num_prompt_tokens, 0.5]).tobytes()
            cluster.worker.emit(Row(submit.ref.attempt, 0, [], STOP, vector=vector))

    cluster.scheduler.on_operation = answer


@pytest.mark.parametrize("encoding_format", ["float", "base64"])
async def test_embeddings(sdk: openai.AsyncOpenAI, cluster: Cluster, encoding_format: Any) -> None:
    serve_vectors(cluster)
    answer = await sdk.embeddings.create(
        model="toy", input=[[5], [6, 7]], encoding_format=encoding_format, dimensions=2
    )
    vectors = [item.embedding for item in answer.data]
    if encoding_format == "base64":
        assert isinstance(vectors[0], str)
        return
    assert vectors == [[1.0, 0.5], [2.0, 0.5]]
    assert answer.usage.prompt_tokens == 3
    payload = generation_pb2.RequestPayload.FromString((await cluster.scheduler.next("submit")).payload)
    assert payload.pooling.dimensions == 2


async def test_the_sdks_own_encoding(sdk: openai.AsyncOpenAI, cluster: Cluster) -> None:
    serve_vectors(cluster)
    for given, count in (("the", 1), ([5, 6, 7], 1), (["a", "b"], 2)):
        answer = await sdk.embeddings.create(model="toy", input=given)
        assert [item.index for item in answer.data] == list(range(count))
        assert all(item.embedding[1] == 0.5 for item in answer.data)


async def test_bad_embeddings_name_their_field(http: httpx.AsyncClient) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "temperature": 1}, "temperature"),
    ]
    for body, param in bad:
        answer = await http.post("/v1/embeddings", json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), (body, answer.text)


async def test_a_vector_that_does_not_come_is_an_error(http: httpx.AsyncClient, cluster: Cluster) -> None:
    cluster.scheduler.on_operation = lambda operation: cluster.worker.emit(
        Row(operation.submit.ref.attempt, 0, [], STOP)
    )
    answer = await http.post("/v1/embeddings", json={"input": "a"})
    assert (answer.status_code, "vector" in answer.text) == (500, True)


async def test_embed_over_grpc(frontend: Frontend, cluster: Cluster) -> None:
    serve_vectors(cluster)
    async with Client(f"127.0.0.1:{frontend.grpc_port}") as client:
        assert await client.embed([[5], [6, 7]]) == [(1.0, 0.5), (2.0, 0.5)]
        with pytest.raises(InvalidRequestError) as caught:
            await client.embed([[5], ""])
        assert caught.value.field == "inputs[1].text"


async def test_bad_embed_requests_over_grpc(frontend: Frontend) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({}, "inputs"),
        ({"inputs": [{}]}, "inputs[0]"),
        ({"inputs": [{"text": "a"}], "pooling": {"mode": 9}}, "pooling.mode"),
        ({"inputs": [{"text": "a"}], "priority": 1001}, "priority"),
    ]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{frontend.grpc_port}") as channel:
        stub: Any = GenerationServiceStub(channel)
        for fields, name in bad:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Embed(frontend_pb2.EmbedRequest(**fields))
            metadata: Any = caught.value.trailing_metadata()
            trailing = dict(metadata)
            assert (caught.value.code(), trailing["signalbox-field"]) == (
                grpc.StatusCode.INVALID_ARGUMENT,
                name,
            )


async def test_a_deadline_cancels_all_inputs(frontend: Frontend, cluster: Cluster) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{frontend.grpc_port}") as channel:
        stub: Any = GenerationServiceStub(channel)
        request = frontend_pb2.EmbedRequest(inputs=[{"text": "a"}, {"text": "b"}])
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Embed(request, timeout=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await until(lambda: len(frontend.table) == 0)


# ---- tokens


async def test_tokenize_and_back(http: httpx.AsyncClient, tokenizer: Tokenizer) -> None:
    text = "größe 🚂<tool call>"
    ids = tokenizer.fast.encode(text).ids
    answer = (await http.post("/tokenize", json={"prompt": text, "return_token_strs": True})).json()
    strings = [tokenizer.fast.id_to_token(token) for token in ids]
    assert answer == {"count": len(ids), "max_model_len": 200, "tokens": ids, "token_strs": strings}
    assert (await http.post("/detokenize", json={"tokens": ids})).json() == {"prompt": text}


async def test_tokens_of_messages(http: httpx.AsyncClient, tokenizer: Tokenizer) -> None:
    messages = [{"role": "user", "content": "hi"}]
    for more, prompt in (({}, "<|assistant|>"), ({"add_generation_prompt": False}, "")):
        answer = (await http.post("/tokenize", json={"messages": messages} | more)).json()
        assert answer["tokens"] == tokenizer.fast.encode(f"<bos><|user|>hi\n{prompt}").ids


async def test_bad_token_requests_name_their_field(http: httpx.AsyncClient) -> None:
    bad: list[tuple[str, dict[str, Any], str]] = [
        ("tokenize", {}, "prompt"),
        ("tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "x"}]}, "prompt"),
        ("tokenize", {"prompt": "a", "tools": []}, "tools"),
        ("detokenize", {"tokens": [10**6]}, "tokens"),
        ("detokenize", {"tokens": [-1]}, "tokens"),
    ]
    for path, body, param in bad:
        answer = await http.post(f"/{path}", json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), (body, answer.text)


async def test_tokens_over_grpc(frontend: Frontend, tokenizer: Tokenizer) -> None:
    ids = tokenizer.fast.encode("the fox 🚂").ids
    async with Client(f"127.0.0.1:{frontend.grpc_port}") as client:
        assert await client.tokenize("the fox 🚂") == ids
        assert await client.detokenize(ids) == "the fox 🚂"
        with pytest.raises(InvalidRequestError) as caught:
            await client.detokenize([10**6])
        assert caught.value.field == "token_ids"


# ---- models, probes, time


async def test_one_model(sdk: openai.AsyncOpenAI) -> None:
    assert (await sdk.models.retrieve("toy")).id == "toy"
    with pytest.raises(openai.NotFoundError):
        await sdk.models.retrieve("other/model")


async def test_probes_answer_get_and_head(http: httpx.AsyncClient) -> None:
    for path in ("/health", "/live", "/ready", "/metrics", "/version", "/v1/models"):
        full, head = await http.get(path), await http.head(path)
        assert (full.status_code, head.status_code, head.content) == (200, 200, b"")
        assert full.content
    assert (await http.get("/version")).json() == {"version": __version__}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_time_limit_cancels(
    http: httpx.AsyncClient, cluster: Cluster, frontend: Frontend, stream: bool
) -> None:
    body = {"prompt": "the", "stream": stream, "n": 2}
    headers = {"X-Request-Timeout": "0.2"}
    answering = asyncio.create_task(http.post("/v1/completions", json=body, headers=headers))
    for _ in range(2):
        submit = await cluster.scheduler.next("submit")
        cluster.worker.emit(Row(submit.ref.attempt, 0, [9]))
    answer = await answering
    assert answer.status_code == (200 if stream else 504)
    assert "DeadlineExceededError" in answer.text
    for _ in range(2):
        await cluster.scheduler.next("cancel")
    assert len(frontend.table) == 0


async def test_time_limits_that_are_none(http: httpx.AsyncClient) -> None:
    for value in ("0", "-1", "soon", "nan", "inf", "86401"):
        answer = await http.post(
            "/v1/completions", json={"prompt": "the"}, headers={"X-Request-Timeout": value}
        )
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "x-request-timeout")
