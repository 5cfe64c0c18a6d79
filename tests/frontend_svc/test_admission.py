"""API keys at real servers: who is let in, with what priority, within which limits, and what is kept apart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import openai
import pytest
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from starlette.routing import Route

from frontend_svc import grpc_api, key_file, vllm_faces
from frontend_svc.config import FrontendSettings, is_loopback
from frontend_svc.http_auth import OPEN, OPEN_PREFIX
from frontend_svc.server import Frontend
from frontend_svc.tokenizer import Tokenizer
from signalbox import rpc
from signalbox.api_keys import NewKey, make_key
from signalbox.client import Client
from signalbox.errors import (
    AuthenticationError,
    CancelledError,
    DeadlineExceededError,
    PermissionDeniedError,
    RequestTooLargeError,
    ResourceExhaustedError,
    StartupError,
)
from signalbox.hash_chain import root_hash
from signalbox.v1 import frontend_pb2
from signalbox.vllm import control_pb2, control_pb2_grpc, engine_pb2, engine_pb2_grpc
from tests.frontend_svc.helpers import serve_text, until
from tests.frontend_svc.scripted_cluster import Cluster, Row

COMPLETION = {"model": "toy", "prompt": "the fox"}
STOP = 1


class KeyRing:
    """A key file and the keys in it, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys: dict[str, NewKey] = {}
        self._lines: dict[str, str] = {}

    def add(self, name: str, tenant: str = "acme", **fields: object) -> None:
        """Adds or changes a key."""
        key = self.keys.setdefault(name, make_key())
        more = "".join(f", {field} = {str(value).lower()}" for field, value in fields.items())
        self._lines[name] = f'"{key.key_id}" = {{ hash = "{key.hash}", tenant = "{tenant}"{more} }}\n'
        self.path.write_text("".join(self._lines.values()))

    def remove(self, name: str) -> None:
        del self._lines[name]
        self.path.write_text("".join(self._lines.values()))

    def headers(self, name: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.keys[name].text}"}

    def metadata(self, name: str) -> tuple[tuple[str, str], ...]:
        return tuple(self.headers(name).items())


Start = Callable[..., Awaitable[Frontend]]


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeyRing:
    """Keys of two tenants, with nothing special."""
    monkeypatch.setattr(key_file, "LOOK_EVERY_S", 0.02)
    ring = KeyRing(tmp_path / "keys.toml")
    ring.add("acme")
    ring.add("other", tenant="other")
    return ring


@pytest.fixture
async def start(cluster: Cluster, model_directory: Path, ring: KeyRing) -> AsyncIterator[Start]:
    """Starts the frontend of the test with these settings."""
    frontends: list[Frontend] = []

    async def start_one(**settings: Any) -> Frontend:
        given = {
            "scheduler": f"127.0.0.1:{cluster.scheduler_port}",
            "http": "127.0.0.1:0",
            "grpc": "127.0.0.1:0",
            "model": model_directory,
            "drain_s": 0.2,
            "max_request_bytes": 100_000,
            "key_file": ring.path,
        }
        frontend = Frontend(FrontendSettings.model_validate(given | settings))
        frontends.append(frontend)
        await frontend.start()
        await until(lambda: frontend.is_ready)
        return frontend

    yield start_one
    for frontend in frontends:
        await frontend.stop()


@pytest.fixture
async def guarded(start: Start) -> Frontend:
    return await start()


@asynccontextmanager
async def http_of(frontend: Frontend) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{frontend.http_port}", timeout=5) as client:
        yield client


@asynccontextmanager
async def sdk_of(frontend: Frontend, key: str) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"http://127.0.0.1:{frontend.http_port}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0, timeout=5) as client:
        yield client


@asynccontextmanager
async def grpc_of(frontend: Frontend, key: str) -> AsyncIterator[Client]:
    async with Client(f"127.0.0.1:{frontend.grpc_port}", api_key=key) as client:
        yield client


async def ask(frontend: Frontend, headers: dict[str, str], **body: object) -> httpx.Response:
    async with http_of(frontend) as http:
        return await http.post("/v1/completions", json=COMPLETION | body, headers=headers)


async def until_answer(frontend: Frontend, headers: dict[str, str], status: int) -> None:
    """Asks for the models until the answer has this status: the key file has been read again."""
    async with asyncio.timeout(5), http_of(frontend) as http:
        while (await http.get("/v1/models", headers=headers)).status_code != status:
            await asyncio.sleep(0.02)


async def raw_status(frontend: Frontend, *authorization: str) -> int:
    """Status of GET /v1/models with these headers, however odd they are."""
    reader, writer = await asyncio.open_connection("127.0.0.1", frontend.http_port)
    lines = ["GET /v1/models HTTP/1.1", "host: x", "connection: close"]
    lines += [f"authorization: {value}" for value in authorization]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
    status = (await reader.readline()).split()[1]
    writer.close()
    return int(status)


# ---- who is let in


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
        "code": "AuthenticationError",
    }
    async with sdk_of(guarded, "sk-wrong") as sdk:
        with pytest.raises(openai.AuthenticationError, match="the API key is not known"):
            await sdk.completions.create(model="toy", prompt="the")
    async with grpc_of(guarded, "") as client:
        with pytest.raises(AuthenticationError, match="needs an API key"):
            await client.generate("the").result()
    assert cluster.scheduler.operations.empty()
    assert b'requests_total{outcome="AuthenticationError"} 3.0' in guarded.metrics.render()


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
    app: Any = guarded._http._server.config.app
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
        for name in (grpc_api.SERVICE, *vllm_faces.SERVICES):
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


# ---- the file changes


async def test_keys_come_and_go_while_the_server_runs(
    guarded: Frontend, cluster: Cluster, tokenizer: Tokenizer, ring: KeyRing
) -> None:
    serve_text(cluster, tokenizer, "x")
    ring.add("late")
    await until_answer(guarded, ring.headers("late"), 200)
    ring.remove("acme")
    await until_answer(guarded, ring.headers("acme"), 401)
    assert (await ask(guarded, ring.headers("late"))).status_code == 200


async def test_what_runs_goes_on_when_its_key_is_revoked(
    guarded: Frontend, cluster: Cluster, ring: KeyRing
) -> None:
    asking = asyncio.create_task(ask(guarded, ring.headers("acme")))
    attempt = (await cluster.scheduler.next("submit")).ref.attempt
    ring.remove("acme")
    await until_answer(guarded, ring.headers("acme"), 401)
    cluster.worker.emit(Row(attempt, 0, [9], STOP))
    assert (await asking).status_code == 200


async def test_a_slip_of_the_pen_changes_nothing(
    guarded: Frontend,
    cluster: Cluster,
    tokenizer: Tokenizer,
    ring: KeyRing,
    caplog: pytest.LogCaptureFixture,
) -> None:
    serve_text(cluster, tokenizer, "x")
    ring.path.write_text("[[")
    await until(lambda: "the keys of before stay valid" in caplog.text)
    assert (await ask(guarded, ring.headers("acme"))).status_code == 200
    assert (await ask(guarded, {})).status_code == 401
    caplog.clear()
    ring.path.unlink()
    await until(lambda: "the keys of before stay valid" in caplog.text)
    assert (await ask(guarded, ring.headers("acme"))).status_code == 200
    ring.add("late")
    await until_answer(guarded, ring.headers("late"), 200)


async def test_a_mounted_secret_is_a_link_that_moves(
    start: Start, cluster: Cluster, tokenizer: Tokenizer, ring: KeyRing, tmp_path: Path
) -> None:
    serve_text(cluster, tokenizer, "x")
    new = tmp_path / "new"
    new.write_text(ring.path.read_text())
    link = tmp_path / "mounted"
    link.symlink_to(ring.path)
    guarded = await start(key_file=link)
    ring.path = new
    ring.remove("acme")
    ring.add("late")
    spare = tmp_path / "spare"
    spare.symlink_to(new)
    spare.rename(link)
    await until_answer(guarded, ring.headers("late"), 200)
    assert (await ask(guarded, ring.headers("acme"))).status_code == 401


async def test_keys_are_never_logged(
    guarded: Frontend,
    cluster: Cluster,
    tokenizer: Tokenizer,
    ring: KeyRing,
    caplog: pytest.LogCaptureFixture,
) -> None:
    serve_text(cluster, tokenizer, "x")
    caplog.set_level(logging.DEBUG)
    unknown, key = make_key().text, ring.keys["acme"].text
    assert (await ask(guarded, {"authorization": f"Bearer {unknown}"})).status_code == 401
    assert (await ask(guarded, ring.headers("acme"))).status_code == 200
    async with grpc_of(guarded, unknown) as client:
        with pytest.raises(AuthenticationError):
            await client.list_models()
    for broken in (f'"00000000" = {{ hash = "{key}", tenant = "t" }}', f"{key} = {key}", key):
        caplog.clear()
        ring.path.write_text(broken)
        await until(lambda: "the keys of before stay valid" in caplog.text)
        assert key not in caplog.text
    assert unknown not in caplog.text


# ---- priority


async def test_a_better_priority_than_allowed(guarded: Frontend, cluster: Cluster, ring: KeyRing) -> None:
    headers = ring.headers("acme")
    for more, body, field in (
        ({}, {"priority": -1}, "priority"),
        ({"x-priority": "-1"}, {}, "x-priority"),
        ({"x-priority": "-1"}, {"priority": -1}, "x-priority"),
    ):
        answer = await ask(guarded, headers | more, **body)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (403, field)
        assert error["message"] == f"{field} is -1; the lowest number that this key may use is 0"
    async with grpc_of(guarded, ring.keys["acme"].text) as client:
        with pytest.raises(PermissionDeniedError) as caught:
            await client.generate("the", priority=-1).result()
        assert caught.value.field == "priority"
        with pytest.raises(PermissionDeniedError):
            await client.embed(["the"], priority=-1)
    assert cluster.scheduler.operations.empty()


@pytest.mark.parametrize(
    ("headers", "body", "priority"),
    [
        ({}, {}, 5),
        ({}, {"priority": 5}, 5),
        ({}, {"priority": 7}, 7),
        ({"x-priority": "7"}, {}, 7),
        ({"x-priority": "7"}, {"priority": 7}, 7),
    ],
)
async def test_priorities_within_the_ceiling(
    start: Start,
    cluster: Cluster,
    tokenizer: Tokenizer,
    ring: KeyRing,
    headers: dict[str, str],
    body: dict[str, int],
    priority: int,
) -> None:
    serve_text(cluster, tokenizer, "x")
    ring.add("acme", best_priority=5)
    guarded = await start()
    assert (await ask(guarded, ring.headers("acme") | headers, **body)).status_code == 200
    assert (await cluster.scheduler.next("submit")).meta.priority == priority


@pytest.mark.parametrize(
    ("header", "body", "param"),
    [("x", {}, "x-priority"), ("1", {"priority": 2}, "x-priority"), ("1001", {}, "x-priority")],
)
async def test_a_priority_that_makes_no_sense(
    guarded: Frontend, ring: KeyRing, header: str, body: dict[str, int], param: str
) -> None:
    answer = await ask(guarded, ring.headers("acme") | {"x-priority": header}, **body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_a_good_priority_for_who_may(
    start: Start, cluster: Cluster, tokenizer: Tokenizer, ring: KeyRing
) -> None:
    serve_text(cluster, tokenizer, "x")
    ring.add("acme", best_priority=-20)
    guarded = await start()
    assert (await ask(guarded, ring.headers("acme"), priority=-20)).status_code == 200
    assert (await ask(guarded, ring.headers("acme"), priority=-21)).status_code == 403
    assert (await ask(guarded, ring.headers("acme"))).status_code == 200
    assert [(await cluster.scheduler.next("submit")).meta.priority for _ in range(2)] == [-20, 0]


# ---- limits


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
        ({"model": "none"}, 400),
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


# ---- limits of the server


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
        operation.submit.ref, "ResourceExhaustedError", "9 requests wait already; try again later"
    )
    answer = await ask(guarded, ring.headers("acme"))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    async with rpc.channel(f"127.0.0.1:{guarded.grpc_port}") as channel:
        request = frontend_pb2.GenerateRequest(text="the").SerializeToString()
        call = channel.unary_stream("/signalbox.v1.GenerationService/Generate")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await anext(aiter(call(request, metadata=ring.metadata("acme"))))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert dict(caught.value.trailing_metadata() or ())["retry-after"] == "1"


# ---- tenants


@pytest.mark.parametrize("shared", [False, True])
async def test_tenants_have_roots_of_their_own(
    start: Start, cluster: Cluster, tokenizer: Tokenizer, ring: KeyRing, shared: bool
) -> None:
    serve_text(cluster, tokenizer, "x")
    ring.add("acme's second")
    guarded = await start(share_prefix_cache=shared)
    roots = []
    for name, salt in (("acme", ""), ("acme's second", ""), ("other", ""), ("other", "acme")):
        answer = await ask(guarded, ring.headers(name), cache_salt=salt)
        assert answer.status_code == 200
        roots.append((await cluster.scheduler.next("submit")).meta.root_hash)
    assert roots[0] == roots[1]
    assert (roots[2] == roots[0]) is shared
    assert roots[3] not in roots[:3]
    tenants = ("", "") if shared else ("acme", "other")
    assert (roots[0], roots[2]) == tuple(root_hash("toy", tenant=tenant) for tenant in tenants)


@pytest.mark.parametrize("face", ["control", "engine"])
async def test_nobody_aborts_what_is_not_theirs(
    start: Start, cluster: Cluster, ring: KeyRing, face: str
) -> None:
    ring.add("admin", tenant="operators", admin=True)
    guarded = await start()
    cluster.scheduler.on_operation = lambda operation: (
        cluster.scheduler.place(operation.submit.ref)
        if operation.WhichOneof("operation") == "submit"
        else None
    )
    async with (
        rpc.channel(f"127.0.0.1:{guarded.grpc_port}") as channel,
        grpc_of(guarded, ring.keys["acme"].text) as client,
    ):
        control: Any = control_pb2_grpc.ControlStub(channel)
        engine: Any = engine_pb2_grpc.VllmEngineStub(channel)

        async def abort(name: str) -> None:
            if face == "control":
                request = control_pb2.AbortRequest(request_ids=["mine"])
                await control.Abort(request, metadata=ring.metadata(name))
            else:
                await engine.Abort(
                    engine_pb2.AbortRequest(request_ids=["mine"]), metadata=ring.metadata(name)
                )

        for owner in ("acme", "admin"):
            generation = client.generate("the", request_id="mine")
            reading = asyncio.create_task(generation.result())
            await until(lambda: len(guarded.table) == 1)
            await abort("other")
            assert len(guarded.table) == 1
            await abort(owner)
            await until(lambda: not len(guarded.table))
            with pytest.raises(CancelledError):
                await reading
