"""Workers behind a relay, as processes: requests run, and whatever dies, each ends once and with the right tokens."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from signalbox.client import Client, Delta, Generation
from tests.e2e.faults.relayed_ring import WORKERS, RelayedRing
from worker_svc.runner.sim.model import continuation

VOCAB_SIZE = 4096
OUTPUT_TOKENS = 150
NUM_REQUESTS = 8


@pytest.fixture
async def ring(tmp_path: Path) -> AsyncIterator[RelayedRing]:
    ring = RelayedRing(tmp_path)
    for name in ("scheduler", "relay", *WORKERS, "frontend"):
        ring.start(name)
    try:
        await ring.ready()
        yield ring
    finally:
        statuses = ring.stop()
    assert set(statuses.values()) == {0}, statuses


def make_prompts(seed: int) -> list[list[int]]:
    numbers = random.Random(seed)
    return [[numbers.randrange(VOCAB_SIZE) for _ in range(9)] for _ in range(NUM_REQUESTS)]


class Clients:
    """Requests that run, and what came of them so far."""

    def __init__(self, ring: RelayedRing, seed: int = 0) -> None:
        self._prompts = make_prompts(seed)
        self._client = Client(ring.grpc)
        self.deltas: list[list[Delta]] = [[] for _ in self._prompts]
        generations = [
            self._client.generate(prompt, max_tokens=OUTPUT_TOKENS, temperature=0, ignore_eos=True)
            for prompt in self._prompts
        ]
        self._readers = [
            asyncio.create_task(self._read(generation, deltas))
            for generation, deltas in zip(generations, self.deltas, strict=True)
        ]

    async def _read(self, generation: Generation, deltas: list[Delta]) -> None:
        async for delta in generation:
            deltas.append(delta)

    async def all_run(self) -> None:
        """Until every request has given a token; none may have ended."""
        async with asyncio.timeout(30):
            while not all(self.deltas):
                await asyncio.sleep(0.01)
        assert not any(deltas[-1].finished for deltas in self.deltas)

    async def assert_all_end_once(self) -> None:
        """Every output is what an undisturbed run gives, with one end."""
        async with asyncio.timeout(60):
            await asyncio.gather(*self._readers)
        await self._client.close()
        for prompt, deltas in zip(self._prompts, self.deltas, strict=True):
            tokens = [token for delta in deltas for token in delta.token_ids]
            assert tokens == continuation(prompt, OUTPUT_TOKENS, VOCAB_SIZE)
            assert [delta.finished is not None for delta in deltas].count(True) == 1


def slots_held(ring: RelayedRing) -> list[int]:
    """How many requests each worker brought with each hello, in the order of the hellos."""
    pattern = r"worker (worker-\d) attached: \d+ blocks, (\d+) slots held"
    return [int(held) for _, held in re.findall(pattern, ring.log("scheduler"))]


async def test_two_workers_behind_a_relay_serve_requests(ring: RelayedRing) -> None:
    await Clients(ring).assert_all_end_once()
    workers = await ring.workers()
    assert all(worker.num_output_tokens for worker in workers.values())
    assert sum(worker.num_output_tokens for worker in workers.values()) == NUM_REQUESTS * OUTPUT_TOKENS
    assert "relay relay-0 attached" in ring.log("scheduler")


@pytest.mark.slow
async def test_requests_survive_their_relay(ring: RelayedRing) -> None:
    clients = Clients(ring)
    await clients.all_run()
    ring.kill("relay")
    await ring.attached()
    ring.start("relay")
    await clients.assert_all_end_once()
    assert slots_held(ring)[:2] == [0, 0]
    assert sum(slots_held(ring)[2:]) == NUM_REQUESTS, "the requests came back with the workers' snapshots"


@pytest.mark.slow
async def test_requests_survive_the_scheduler_behind_the_relay(ring: RelayedRing) -> None:
    clients = Clients(ring)
    await clients.all_run()
    ring.kill("scheduler")
    ring.start("scheduler")
    await clients.assert_all_end_once()
    await ring.attached(*WORKERS)  # the requests may be through, alone, before a scheduler has started
    assert sum(slots_held(ring)[2:]) == NUM_REQUESTS


@pytest.mark.slow
async def test_a_killed_worker_disturbs_no_other_of_its_relay(ring: RelayedRing) -> None:
    clients = Clients(ring)
    await clients.all_run()
    before = (await ring.workers())["worker-0"].num_steps
    ring.kill("worker-1")
    await ring.attached("worker-0")
    ring.start("worker-1")
    await clients.assert_all_end_once()
    await ring.attached(*WORKERS)  # the requests may be through before a process has started
    assert ring.log("scheduler").count("worker worker-0 attached") == 1
    assert ring.log("scheduler").count("worker worker-1 attached") == 2
    assert ring.log("scheduler").count("relay relay-0 attached") == 1
    assert (await ring.workers())["worker-0"].num_steps > before
