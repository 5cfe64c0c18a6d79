"""API keys at real servers: with what priority their requests may come."""

from __future__ import annotations

import pytest

from frontend_svc.server import Frontend
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.errors import (
    PermissionDeniedError,
)
from tests.frontend_svc.guarded import KeyRing, Start, ask, grpc_of
from tests.frontend_svc.helpers import serve_text
from tests.frontend_svc.scripted_cluster import Cluster


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
