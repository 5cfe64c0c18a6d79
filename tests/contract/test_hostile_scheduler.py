"""A scheduler that means harm (K10): what it says to workers, relays and frontends ends its links, and nothing else.

The true scheduler is there behind it, and honest clients are served all the while: each token is checked.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from signalbox.client import Client, Result
from signalbox.errors import UnavailableError
from signalbox.v1 import to_frontend_pb2
from tests.contract.odd_orders import (
    NO_MESSAGE,
    TO_FRONTENDS,
    TO_RELAYS,
    TO_WORKERS,
    odd_directory,
)
from tests.contract.scheduler_between import SchedulerBetween, greeted_term, honest
from tests.e2e.faults.relayed_ring import WORKERS, RelayedRing
from tests.e2e.faults.test_sim_failures import VOCAB_SIZE, make_prompts, run
from tests.ports import free_ports
from worker_svc.runner.sim.model import continuation

SCALE = int(os.environ.get("SIGNALBOX_FUZZ", "1"))
TOKENS = 40
MOST_GROWTH_BYTES = 150 << 20
SERVICES = ("scheduler", "relay", *WORKERS, "frontend")
EVERY = 6
"""True messages between two odd ones, on each stream."""


class Siege:
    """A ring whose scheduler is dialled through one that means harm."""

    def __init__(self, ring: RelayedRing, between: SchedulerBetween) -> None:
        self.ring, self.between = ring, between

    def memory(self) -> dict[str, int]:
        """Resident bytes by service; whoever has ended is missing."""
        running = {name: each for name, each in self.ring.processes().items() if each.poll() is None}
        return {name: psutil.Process(each.pid).memory_info().rss for name, each in running.items()}

    async def serve_right(self, count: int) -> None:
        """Clients, some at a time: each gets what it should, once."""
        prompts = make_prompts(count)
        async with Client(self.ring.grpc) as client:
            async with asyncio.timeout(60):
                results = await asyncio.gather(*(run_in_the_end(client, each) for each in prompts))
        for prompt, result in zip(prompts, results, strict=True):
            assert list(result.token_ids) == continuation(prompt, TOKENS, VOCAB_SIZE)

    def assert_well(self, before: dict[str, int]) -> None:
        """Nobody has ended, written a stack, or grown."""
        after = self.memory()
        logs = {name: self.ring.log(name) for name in SERVICES}
        assert after.keys() == set(SERVICES), logs
        for name, log in logs.items():
            assert "Traceback" not in log, f"{name}: {log[-6000:]}"
        grown = {name: after[name] - before[name] for name in SERVICES}
        assert max(grown.values()) < MOST_GROWTH_BYTES, grown


async def run_in_the_end(client: Client, prompt: list[int]) -> Result:
    """Both workers may be saying hello at the moment: then a request is not accepted, and tried again."""
    while True:
        try:
            return await run(client, prompt, TOKENS)
        except UnavailableError as error:
            assert "no worker is attached" in error.message
            await asyncio.sleep(0.1)


@pytest_asyncio.fixture
async def siege(tmp_path: Path) -> AsyncIterator[Siege]:
    dialled = f"127.0.0.1:{free_ports(1)[0]}"
    ring = RelayedRing(tmp_path, fronts={"scheduler": dialled})
    between = SchedulerBetween(ring.scheduler)
    async with between.serve(dialled):
        for name in SERVICES:
            ring.start(name)
        try:
            await ring.ready()
            yield Siege(ring, between)
        finally:
            ended = await asyncio.to_thread(ring.stop)
            assert set(ended.values()) == {0}, ended


@pytest.mark.timeout(120)
async def test_what_no_scheduler_says_ends_a_link_and_nothing_else(siege: Siege) -> None:
    """K10, R5: each order goes to whichever stream has said EVERY true things. tests/worker_svc/test_misfits.py has all
    those to workers; here are some, as a worker that was lied to dials less and less often."""
    names = list(TO_WORKERS)[:: max(1, 5 // SCALE)]
    to_workers, to_frontends = itertools.cycle(names), itertools.cycle(TO_FRONTENDS.values())
    to_relays = itertools.cycle(TO_RELAYS.values())
    said: set[str] = set()
    newest = to_frontend_pb2.WorkerDirectory()

    def tamper(method: str, message: bytes, number: int) -> list[bytes]:
        nonlocal newest
        if method == "AttachFrontend":
            answer = to_frontend_pb2.AttachFrontendResponse.FromString(message)
            newest = answer.workers if answer.HasField("workers") else newest
            if number % EVERY == 1:
                return [message, next(to_frontends).SerializeToString()]
            if number % EVERY == 3:
                odd = to_frontend_pb2.AttachFrontendResponse(workers=odd_directory(newest, siege.ring.grpc))
                return [message, odd.SerializeToString()]
            return [message, NO_MESSAGE] if number == 40 else [message]
        if number % EVERY != EVERY - 1:
            return [message]
        if method == "AttachWorkers":
            return [message, next(to_relays).SerializeToString()]
        term, step_id = greeted_term(message)
        if not step_id:
            return [message]
        name = next(to_workers)
        said.add(name)
        return [message, TO_WORKERS[name](term, step_id + 1).SerializeToString()]

    await siege.serve_right(8)
    before = siege.memory()
    siege.between.tamper = tamper
    async with asyncio.timeout(90):
        while len(said) < len(names):
            await siege.serve_right(8)
    siege.between.tamper = honest
    await siege.serve_right(8)
    siege.assert_well(before)
    log = siege.ring.log("worker-1")
    assert log.count("leaving the scheduler's stream") + log.count("does not fit") >= len(names) - 1
