"""Web pages of others, and what a body says it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest

from frontend_svc.api.http.body_bytes import BodyBytes
from frontend_svc.server import Frontend
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.errors import ResourceExhaustedError
from tests.frontend_svc.guarded import KeyRing, Start, http_of
from tests.frontend_svc.helpers import serve_text
from tests.frontend_svc.scripted_cluster import Cluster

Ask = Callable[..., Awaitable[httpx.Response]]
BODY = b'{"prompt": [5, 6, 7], "max_tokens": 5}'
JSON = {"content-type": "application/json"}


@pytest.fixture
def ask(http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer) -> Ask:
    """Posts a completion with these headers."""
    serve_text(cluster, tokenizer, "the lazy dog")

    async def post(**headers: str) -> httpx.Response:
        return await http.post("/v1/completions", content=BODY, headers=JSON | headers)

    return post


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8000", "127.0.0.1", "127.9.9.9:1", "[::1]:8000", "LOCALHOST"]
)
async def test_names_of_this_machine_are_served(ask: Ask, host: str) -> None:
    assert (await ask(host=host)).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", "10.0.0.1", "[", ""]
)
async def test_a_name_that_leads_here_is_refused(ask: Ask, http: httpx.AsyncClient, host: str) -> None:
    """DNS rebinding: before, the page could read answers and the board."""
    answer = await ask(host=host)
    assert answer.status_code == 403
    assert answer.json()["error"]["param"] == "Host"
    assert (await http.get("/v1/models", headers={"host": host})).status_code == 403


async def test_pages_of_others_are_refused(ask: Ask, http: httpx.AsyncClient) -> None:
    """Before, any page could spend this machine's time; who may read an answer is the browser's to say."""
    answer = await ask(origin="https://evil.example")
    assert (answer.status_code, answer.json()["error"]["param"]) == (403, "Origin")
    assert (await ask(origin="null")).status_code == 403
    assert (await ask(origin="http://localhost:3000")).status_code == 200
    assert (await http.get("/v1/models", headers={"origin": "https://evil.example"})).status_code == 200


@pytest.mark.parametrize("told", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"])
async def test_a_body_says_that_it_is_json(ask: Ask, told: str) -> None:
    """A page may send the others without asking."""
    answer = await ask(**{"content-type": told})
    assert answer.status_code == 415
    assert answer.json()["error"]["param"] == "Content-Type"


@pytest.mark.parametrize(
    "told", ["application/json; charset=utf-8", "Application/JSON", "application/vnd.api+json"]
)
async def test_ways_to_say_json(ask: Ask, told: str) -> None:
    assert (await ask(**{"content-type": told})).status_code == 200


async def test_names_and_pages_can_be_allowed(
    start: Start, ring: KeyRing, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_text(cluster, tokenizer, "the lazy dog")
    allowed = await start(
        key_file=None, allowed_hosts="gpu.lan, other", allowed_origins="https://app.example"
    )
    async with http_of(allowed) as http:
        good = JSON | {"host": "gpu.lan:8000", "origin": "https://app.example"}
        assert (await http.post("/v1/completions", content=BODY, headers=good)).status_code == 200
        bad = JSON | {"host": "gpu.lan", "origin": "https://other.example"}
        assert (await http.post("/v1/completions", content=BODY, headers=bad)).status_code == 403


async def test_keys_make_names_unnecessary(start: Start, ring: KeyRing) -> None:
    """No page has one."""
    async with http_of(await start()) as http:
        headers = ring.headers("acme") | {"host": "api.example"}
        assert (await http.get("/v1/models", headers=headers)).status_code == 200


def test_bodies_have_bytes_together() -> None:
    bodies = BodyBytes(100)
    with bodies.reading() as take:
        take(60)
        with pytest.raises(ResourceExhaustedError, match="max_body_bytes_at_once"), bodies.reading() as other:
            other(30)
            other(20)
        assert bodies.num_bytes == 60
    assert bodies.num_bytes == 0


async def test_a_body_too_many_is_refused_and_the_others_go_on(
    frontend: Frontend, http: httpx.AsyncClient, ask: Ask
) -> None:
    bodies = frontend._services.body_bytes
    bodies._limit = 60
    go_on = asyncio.Event()

    async def slowly() -> object:
        yield BODY[:30]
        await go_on.wait()
        yield BODY[30:]

    slow = asyncio.create_task(http.post("/v1/completions", content=slowly(), headers=JSON))
    while bodies.num_bytes < 30:
        await asyncio.sleep(0.01)
    answer = await ask()
    assert answer.status_code == 429
    assert "retry-after" in answer.headers
    go_on.set()
    assert (await slow).status_code == 200
    assert bodies.num_bytes == 0
