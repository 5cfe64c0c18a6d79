"""Limits of a key and of the server, at real servers."""

from __future__ import annotations

import asyncio

import grpc
import httpx
import openai
import pytest

from frontend_svc.server import Frontend
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.errors import (
    DeadlineExceededError,
    PermissionDeniedError,
    RequestTooLargeError,
    ResourceExhaustedError,
)
from signalbox.links import rpc
from signalbox.v1 import frontend_pb2
from tests.frontend_svc.guarded import COMPLETION, KeyRing, Start, ask, grpc_of, http_of, sdk_of
from tests.frontend_svc.helpers import STOP, serve_text, until
from tests.frontend_svc.scripted_cluster import Cluster, Row


async def test_requests_at_once(start: Start, cluster: Cluster, ring: KeyRing) -> None:
    ring.add("acme", requests_at_once=2)
    guarded = await start()
    key = ring.keys["acme"].text
    asking = asyncio.create_task(ask(guarded, ring.headers("acme"), n=2))
    attempts = [(await cluster.scheduler.next("submit")).ref.attempt for _ in range(2)]
    async with sdk_of(guarded, key) as sdk, grpc_of(guarded, key) as client:
        with pytest.raises(openai.RateLimitError) as caught:
            await sdk.completions.create(model="toy", prompt="the")
        assert caught.value.response.headers["retry-after"] == "1"
        with pytest.raises(ResourceExhaustedError) as refused:
            await client.generate("the").result()
        assert refused.value.retry_after_s == 1
        with pytest.raises(ResourceExhaustedError):
            await client.embed(["the"])
        with pytest.raises(PermissionDeniedError):
            await client.generate("the", n=3).result()
    for attempt in attempts:
        cluster.worker.emit(Row(attempt, 0, [9], STOP))
    assert (await asking).status_code == 200
    cluster.serve(lambda payload: [9], STOP)
    for _ in range(3):
        assert (await ask(guarded, ring.headers("acme"), n=2)).status_code == 200, "places come back"


async def test_whatever_ends_a_request_gives_its_place_back(
    start: Start, cluster: Cluster, ring: KeyRing
) -> None:
    ring.add("acme", requests_at_once=2)
    guarded = await start()
    headers = ring.headers("acme")
    for body, status in (
        ({"prompt": ["the", ""]}, 400),
        ({"temperature": -1}, 400),
        ({"priority": -1}, 403),
        ({"model": "none"}, 404),
    ):
        assert (await ask(guarded, headers, **body)).status_code == status
    cluster.scheduler.on_operation = lambda operation: (
        cluster.scheduler.reject(operation.submit.ref, "UnavailableError", "no")
        if operation.WhichOneof("operation") == "submit"
        else None
    )
    assert (await ask(guarded, headers, n=2)).status_code == 503
    cluster.scheduler.on_operation = lambda operation: None
    with pytest.raises(httpx.ReadTimeout):
        async with http_of(guarded) as http:
            await http.post("/v1/completions", json=COMPLETION | {"n": 2}, headers=headers, timeout=0.2)
    await until(lambda: not len(guarded.table))
    async with grpc_of(guarded, ring.keys["acme"].text) as client:
        with pytest.raises(DeadlineExceededError):
            await client.generate("the", n=2, timeout_s=0.2).result()
    await until(lambda: not len(guarded.table))
    cluster.serve(lambda payload: [9], STOP)
    assert (await ask(guarded, headers, n=2)).status_code == 200


async def test_requests_per_minute(
    start: Start, cluster: Cluster, tokenizer: Tokenizer, ring: KeyRing
) -> None:
    serve_text(cluster, tokenizer, "x")
    ring.add("acme", requests_per_minute=2)
    guarded = await start()
    assert (await ask(guarded, ring.headers("acme"), prompt=["the", "fox"])).status_code == 200
    answer = await ask(guarded, ring.headers("acme"))
    assert (answer.status_code, answer.json()["error"]["type"]) == (429, "rate_limit_error")
    assert 28 <= int(answer.headers["retry-after"]) <= 30
    async with grpc_of(guarded, ring.keys["acme"].text) as client:
        with pytest.raises(ResourceExhaustedError, match="2 requests per minute") as caught:
            await client.generate("the").result()
        assert 28 <= (caught.value.retry_after_s or 0) <= 30
    assert (await ask(guarded, ring.headers("other"))).status_code == 200, "others have limits of their own"
    ring.add("acme", requests_per_minute=1000)
    async with asyncio.timeout(5):
        while (await ask(guarded, ring.headers("acme"))).status_code != 200:
            await asyncio.sleep(0.02)


async def test_tokens_per_minute(start: Start, cluster: Cluster, ring: KeyRing) -> None:
    cluster.serve(lambda payload: [9] * 8, STOP)
    ring.add("acme", tokens_per_minute=12)
    guarded = await start()
    assert (await ask(guarded, ring.headers("acme"), prompt=[5] * 10, n=2)).status_code == 200
    answer = await ask(guarded, ring.headers("acme"), prompt=[5])
    assert answer.status_code == 429
    assert "12 tokens per minute" in answer.json()["error"]["message"]
    assert 70 <= int(answer.headers["retry-after"]) <= 75, "10 of the prompt, twice 8 of the outputs, 1 to go"


async def test_a_body_that_is_too_large(guarded: Frontend, ring: KeyRing) -> None:
    answer = await ask(guarded, ring.headers("acme"), prompt="x" * 100_000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "RequestTooLargeError")
    async with grpc_of(guarded, ring.keys["acme"].text) as client:
        with pytest.raises(ResourceExhaustedError, match="larger than max"):
            await client.generate("x" * 100_000).result()


async def test_a_prompt_that_is_too_long_for_this_server(start: Start, ring: KeyRing) -> None:
    guarded = await start(max_prompt_tokens=10)
    answer = await ask(guarded, ring.headers("acme"), prompt=[5] * 11)
    assert (answer.status_code, answer.json()["error"]["param"]) == (413, "prompt")
    async with grpc_of(guarded, ring.keys["acme"].text) as client:
        with pytest.raises(RequestTooLargeError, match="11 tokens; this server takes 10"):
            await client.generate([5] * 11).result()


async def test_a_full_queue_says_when_to_come_back(
    guarded: Frontend, cluster: Cluster, ring: KeyRing
) -> None:
    cluster.scheduler.on_operation = lambda operation: cluster.scheduler.reject(
        operation.submit.ref, "ResourceExhaustedError", "9 of 9 requests wait already", retry_after_ms=2500
    )
    answer = await ask(guarded, ring.headers("acme"))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
    async with rpc.channel(f"127.0.0.1:{guarded.grpc_port}") as channel:
        request = frontend_pb2.GenerateRequest(text="the").SerializeToString()
        call = channel.unary_stream("/signalbox.v1.GenerationService/Generate")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await anext(aiter(call(request, metadata=ring.metadata("acme"))))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert dict(caught.value.trailing_metadata() or ())["retry-after"] == "3"
