"""A key at two frontends of one real scheduler: what they let in together (KB1 to KB5, KB8)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest

from frontend_svc.server import Frontend
from frontend_svc.text.tokenizer import Tokenizer
from scheduler_svc.server import TICK_S, tick_for_ever
from scheduler_svc.step_loop import StepLoop
from signalbox.v1 import from_worker_pb2, shared_pb2
from tests.frontend_svc.guarded import COMPLETION, KeyRing, Start, ask, http_of
from tests.frontend_svc.helpers import until
from tests.frontend_svc.scripted_cluster import Cluster
from tests.ports import free_ports
from tests.scheduler_svc.attached import dial, make_hello, serve

LIMIT = 12
TEXT = {"model": "toy", "prompt": "the fox"}
StartTwo = Callable[[str], Awaitable[list[Frontend]]]


@asynccontextmanager
async def scheduling(
    cluster: Cluster, tokenizer: Tokenizer, port: int = 0
) -> AsyncIterator[tuple[StepLoop, str]]:
    """A scheduler, its loop and its address, with a worker that takes requests and never runs a step."""
    model = shared_pb2.ModelEntry(
        model="toy",
        max_model_len=256,
        block_size=4,
        vocab_size=tokenizer.fast.get_vocab_size(),
        tokenizer_fingerprint=tokenizer.fingerprint,
    )
    async with serve(port=port) as (loop, address), dial(address) as stub, asyncio.TaskGroup() as tasks:
        stream = stub.AttachWorker()
        process = {"worker_instance": cluster.worker.instance, "address": f"127.0.0.1:{cluster.worker_port}"}
        await stream.write(make_hello("w", model=model, **process))
        running = [tasks.create_task(_read(stream)), tasks.create_task(tick_for_ever(loop, TICK_S))]
        yield loop, address
        for task in running:
            task.cancel()
        stream.cancel()


async def _read(stream: Any) -> None:
    while await stream.read():
        await stream.write(from_worker_pb2.AttachWorkerRequest())


@pytest.fixture
def two(start: Start) -> StartTwo:
    async def start_two(address: str) -> list[Frontend]:
        return [await start(scheduler=address, queue_s=0.5) for _ in range(2)]

    return start_two


async def tokenize(frontend: Frontend, headers: dict[str, str]) -> httpx.Response:
    async with http_of(frontend) as http:
        return await http.post("/tokenize", json=TEXT, headers=headers)


async def count_served(frontends: list[Frontend], headers: dict[str, str], num_calls: int) -> int:
    """How many calls were served of so many, spread over the frontends; all others are refused for the limit."""
    calls = [tokenize(frontends[number % len(frontends)], headers) for number in range(num_calls)]
    answers = await asyncio.gather(*calls)
    assert {answer.status_code for answer in answers} <= {200, 429}, [answer.text for answer in answers]
    for answer in answers:
        if answer.status_code == 429:
            assert "requests_per_minute" in answer.text and int(answer.headers["retry-after"]) > 0
    return sum(answer.status_code == 200 for answer in answers)


async def test_two_frontends_have_one_limit(
    two: StartTwo, ring: KeyRing, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """KB1: all of it is there for one of them, and no more for both; a key without limits is asked of nobody (KB8)."""
    ring.add("acme", requests_per_minute=LIMIT)
    async with scheduling(cluster, tokenizer) as (_, address):
        frontends = await two(address)
        began_at = time.monotonic()
        num_served = await count_served(frontends[:1], ring.headers("acme"), LIMIT - 4)
        assert num_served == LIMIT - 4
        num_served += await count_served(frontends, ring.headers("acme"), 3 * LIMIT)
        passed_s = time.monotonic() - began_at
        assert LIMIT <= num_served <= LIMIT + passed_s * LIMIT / 60
        assert await count_served(frontends, ring.headers("other"), 2 * LIMIT) == 2 * LIMIT


async def test_places_are_shared(
    two: StartTwo, ring: KeyRing, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """KB1, KB2: requests at once; a place comes back whoever gives it up."""
    ring.add("acme", requests_at_once=2)
    headers = ring.headers("acme")
    async with scheduling(cluster, tokenizer) as (loop, address), AsyncExitStack() as stack:
        first, second = await two(address)
        running = [asyncio.create_task(ask(frontend, headers)) for frontend in (first, second)]
        await until(lambda: len(loop.core.requests) == 2)
        refused = await tokenize(second, headers)
        assert refused.status_code == 429
        assert "this key has 0 of 2 left" in refused.text
        running.pop(0).cancel()
        async with asyncio.timeout(5):
            while (await tokenize(second, headers)).status_code != 200:
                await asyncio.sleep(0.02)
        stack.callback(running[0].cancel)


async def test_prompts_are_counted_together(
    two: StartTwo, ring: KeyRing, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """KB1: tokens per minute."""
    num_tokens = len(tokenizer.fast.encode("the fox").ids)
    ring.add("acme", tokens_per_minute=2 * num_tokens)
    headers = ring.headers("acme")
    async with scheduling(cluster, tokenizer) as (loop, address):
        first, second = await two(address)
        running = [asyncio.create_task(ask(frontend, headers)) for frontend in (first, second)]
        await until(lambda: len(loop.core.requests) == 2)
        for frontend in (first, second):
            answer = await ask(frontend, headers, prompt=COMPLETION["prompt"])
            assert (answer.status_code, "tokens_per_minute" in answer.text) == (429, True), answer.text
        for each in running:
            each.cancel()


async def test_another_scheduler_hears_what_was_taken(
    two: StartTwo, ring: KeyRing, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """KB4, KB5: without one nothing more is lent; the next one learns from frontends what is left."""
    ring.add("acme", requests_per_minute=LIMIT)
    headers = ring.headers("acme")
    port = free_ports(1)[0]
    async with scheduling(cluster, tokenizer, port) as (_, address):
        frontends = await two(address)
        began_at = time.monotonic()
        for number in range(LIMIT):
            assert (await tokenize(frontends[number % 2], headers)).status_code == 200
    ring.add("other", tenant="other", requests_per_minute=LIMIT)
    await until(lambda: not any(frontend.scheduler.connected for frontend in frontends))
    alone = await tokenize(frontends[0], headers)
    assert alone.status_code in (429, 503), alone.text

    def attached(loop: StepLoop) -> bool:
        return loop.num_frontends == 2 and all(frontend.is_ready for frontend in frontends)

    async with scheduling(cluster, tokenizer, port) as (loop, address):
        await until(lambda: attached(loop))
        num_served = await count_served(frontends, headers, 2 * LIMIT)
        # A frontend may not have heard of the other one's last call.
        assert num_served <= (time.monotonic() - began_at) * LIMIT / 60 + 2


async def test_beside_a_scheduler_that_does_not_lend_a_frontend_counts_alone(
    start: Start, cluster: Cluster, ring: KeyRing
) -> None:
    """KB5: an older one, while a ring is upgraded."""
    ring.add("acme", requests_per_minute=LIMIT)
    frontend = await start()
    assert await count_served([frontend], ring.headers("acme"), LIMIT + 3) == LIMIT
    assert cluster.scheduler.hellos
