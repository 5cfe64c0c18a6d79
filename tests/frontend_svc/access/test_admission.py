"""API keys at real servers: who is let in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import grpc
import openai
import pytest
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from starlette.routing import Route

from frontend_svc.api.grpc import servicer
from frontend_svc.api.http.auth import OPEN, OPEN_PREFIX
from frontend_svc.api.vllm import faces
from frontend_svc.config import FrontendSettings
from frontend_svc.server import Frontend
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.api_keys import make_key
from signalbox.errors import (
    AuthenticationError,
    StartupError,
)
from signalbox.links import rpc
from signalbox.links.addresses import is_loopback
from signalbox.protocol.hash_chain import root_hash
from tests.frontend_svc.guarded import KeyRing, Start, ask, grpc_of, http_of, sdk_of
from tests.frontend_svc.helpers import serve_text
from tests.frontend_svc.scripted_cluster import Cluster


async def raw_status(frontend: Frontend, *authorization: str) -> int:
    """Status of GET /v1/models with these headers, however odd they are."""
    reader, writer = await asyncio.open_connection("127.0.0.1", frontend.http_port)
    lines = ["GET /v1/models HTTP/1.1", "host: x", "connection: close"]
    lines += [f"authorization: {value}" for value in authorization]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
    status = (await reader.readline()).split()[1]
    writer.close()
    return int(status)


async def test_the_right_key(
    guarded: Frontend, cluster: Cluster, tokenizer: Tokenizer, ring: KeyRing
) -> None:
    serve_text(cluster, tokenizer, "x")
    async with sdk_of(guarded, ring.keys["acme"].text) as sdk:
        assert (await sdk.completions.create(model="toy", prompt="the")).choices[0].text == "x"
        assert [model.id async for model in sdk.models.list()] == ["toy"]
    assert (await cluster.scheduler.next("submit")).meta.tenant == "acme"
    async with grpc_of(guarded, ring.keys["other"].text) as client:
        assert (await client.generate("the").result()).text == "x"
        assert [model.id for model in await client.list_models()] == ["toy"]
        assert await client.detokenize(await client.tokenize("the", raw=True)) == "the"
    assert (await cluster.scheduler.next("submit")).meta.tenant == "other"


async def test_no_key_is_openais_401(guarded: Frontend, cluster: Cluster) -> None:
    answer = await ask(guarded, {})
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert answer.json()["error"] == {
        "message": "this server needs an API key: send Authorization: Bearer KEY",
        "type": "authentication_error",
        "param": "authorization",
        "code": "invalid_api_key",
    }
    async with sdk_of(guarded, "sk-wrong") as sdk:
        with pytest.raises(openai.AuthenticationError, match="the API key is not known"):
            await sdk.completions.create(model="toy", prompt="the")
    async with grpc_of(guarded, "") as client:
        with pytest.raises(AuthenticationError, match="needs an API key"):
            await client.generate("the").result()
    assert cluster.scheduler.operations.empty()
    assert b'{gen_ai_request_model="",outcome="AuthenticationError"} 3.0' in guarded.metrics.render()[0]


def wrong_values(ring: KeyRing) -> list[str]:
    acme, other = ring.keys["acme"], ring.keys["other"]
    return [
        acme.text,
        acme.hash,
        f"Basic {acme.text}",
        "Bearer",
        "Bearer ",
        "Bearer    ",
        f"Bearer {acme.text}x",
        f"Bearer {acme.text[:-1]}",
        f"Bearer {acme.hash}",
        f"Bearer {make_key().text}",
        f"Bearer sb_{acme.key_id}_{other.text.split('_', 2)[2]}",
        f"Bearer {acme.text},Bearer {other.text}",
        f"Bearer {'x' * 5000}",
        "Bearer \xe4",
    ]


async def test_wrong_keys(guarded: Frontend, ring: KeyRing) -> None:
    for value in wrong_values(ring):
        assert await raw_status(guarded, value) == 401, value
    right = f"Bearer {ring.keys['acme'].text}"
    assert await raw_status(guarded, right, right) == 401
    assert await raw_status(guarded, right) == 200
    assert await raw_status(guarded, right.replace("Bearer", "bearer ")) == 200


async def test_a_body_without_a_key_is_not_waited_for(guarded: Frontend, ring: KeyRing) -> None:
    async with http_of(guarded) as http:
        for _ in range(3):
            answer = await http.post("/v1/completions", content=b"x" * (16 << 20))
            assert answer.status_code == 401
            assert (await http.get("/v1/models", headers=ring.headers("acme"))).status_code == 200


async def test_every_route_that_is_not_open_needs_a_key(guarded: Frontend) -> None:
    app: Any = guarded._http._server.config.app  # type: ignore[union-attr]
    routes = [route for route in app.routes if isinstance(route, Route)]
    assert len(routes) > 12
    async with http_of(guarded) as http:
        for route in routes:
            path = route.path.replace("{model:path}", "toy").replace("{name}", "page.js")
            for method in sorted(route.methods or ()):
                status = (await http.request(method, path)).status_code
                is_open = path in OPEN or path.startswith(OPEN_PREFIX)
                assert (status == 401) is not is_open, (method, path, status)
        assert (await http.get("/v1/no-such-thing")).status_code == 401
        assert (await http.get("/web/../v1/models")).status_code in (401, 404)
        assert (await http.get("//v1/models")).status_code == 401


async def test_every_method_needs_a_key(guarded: Frontend) -> None:
    pool = descriptor_pool.Default()
    async with rpc.channel(f"127.0.0.1:{guarded.grpc_port}") as channel:
        for name in (servicer.SERVICE, *faces.SERVICES):
            for method in pool.FindServiceByName(name).methods:
                call = channel.unary_stream(f"/{name}/{method.name}")(b"")
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await anext(aiter(call))
                assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED, method.full_name


async def test_metadata_with_two_keys_is_refused(guarded: Frontend, ring: KeyRing) -> None:
    async with rpc.channel(f"127.0.0.1:{guarded.grpc_port}") as channel:
        call = channel.unary_unary("/signalbox.v1.GenerationService/ListModels")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"", metadata=ring.metadata("acme") * 2)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert await call(b"", metadata=ring.metadata("acme"))


async def test_probes_and_metrics_are_open(guarded: Frontend) -> None:
    async with http_of(guarded) as http:
        for path in ("/health", "/live", "/ready", "/metrics", "/version", "/"):
            assert (await http.get(path)).status_code == 200, path
    async with rpc.channel(f"127.0.0.1:{guarded.grpc_port}") as channel:
        stub, request = health_pb2_grpc.HealthStub(channel), health_pb2.HealthCheckRequest()
        async with asyncio.timeout(5):
            while (await stub.Check(request)).status != health_pb2.HealthCheckResponse.SERVING:
                await asyncio.sleep(0.01)


async def test_what_operators_see_needs_an_admin(start: Start, ring: KeyRing) -> None:
    ring.add("admin", admin=True)
    guarded = await start(metrics_need_key=True)
    async with http_of(guarded) as http:
        assert (await http.get("/health")).status_code == 200
        for path in ("/metrics", "/board/events"):
            assert (await http.get(path)).status_code == 401, path
            denied = await http.get(path, headers=ring.headers("acme"))
            assert (denied.status_code, denied.json()["error"]["type"]) == (403, "permission_error"), path
            async with http.stream("GET", path, headers=ring.headers("admin")) as allowed:
                assert allowed.status_code == 200, path


async def test_without_a_key_file_everything_is_open(
    start: Start, cluster: Cluster, tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    serve_text(cluster, tokenizer, "x")
    with caplog.at_level(logging.WARNING):
        frontend = await start(key_file=None, http="0.0.0.0:0")
    assert "without --key-file anybody who reaches 0.0.0.0:0 may call" in caplog.text
    assert (await ask(frontend, {}, priority=-1000)).status_code == 200
    meta = (await cluster.scheduler.next("submit")).meta
    assert (meta.tenant, meta.priority, meta.root_hash) == ("", -1000, root_hash("toy"))


def test_what_only_this_machine_reaches() -> None:
    assert all(map(is_loopback, ("127.0.0.1:80", "127.8.0.1:80", "[::1]:80", "localhost:80")))
    assert not any(map(is_loopback, ("0.0.0.0:80", "[::]:80", "10.0.0.1:80", "example.org:80")))


async def test_a_key_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="cannot read the key file"):
        Frontend(FrontendSettings(key_file=tmp_path / "none.toml"))


async def test_calls_at_one_time_do_not_mix_up_their_callers(
    guarded: Frontend, cluster: Cluster, tokenizer: Tokenizer, ring: KeyRing
) -> None:
    serve_text(cluster, tokenizer, "x")

    async def over_http(sdk: openai.AsyncOpenAI) -> None:
        await sdk.completions.create(model="toy", prompt="the")

    tenants = ("acme", "other")
    keys = [ring.keys[name].text for name in tenants]
    async with (
        sdk_of(guarded, keys[0]) as first_sdk,
        sdk_of(guarded, keys[1]) as second_sdk,
        grpc_of(guarded, keys[0]) as first,
        grpc_of(guarded, keys[1]) as second,
    ):
        calls: list[Awaitable[object]] = []
        for index in range(40):
            calls += [over_http(first_sdk), over_http(second_sdk)]
            for tenant, client in zip(tenants, (first, second), strict=True):
                calls.append(client.generate("the", request_id=f"{tenant}-{index}").result())
        await asyncio.gather(*calls)
    submits = [await cluster.scheduler.next("submit") for _ in calls]
    named = [submit for submit in submits if submit.ref.request_id.startswith(tenants)]
    assert len(named) == 80
    assert all(submit.ref.request_id.startswith(submit.meta.tenant) for submit in named)
    assert sum(submit.meta.tenant == "acme" for submit in submits) == 80
