"""Peers that speak the wire and mean harm: nobody else loses a stream or gets a wrong token, and memory stays bounded.

Without certificates, as they could say nothing with them (tests/e2e/faults/test_tls.py). A worker that a scheduler
takes for the same model gets requests and may end them as it likes: that is what certificates are for, so these
announce a model of their own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import grpc
import pytest

from signalbox.client import Client
from tests.contract.hostile_peers import KNOWN, TO_SCHEDULER, Peer, liar, reader
from tests.contract.odd_messages import OddMessages
from tests.contract.test_openai_sdk import assert_empty
from tests.e2e.conftest import RunningRing, StartRing
from tests.e2e.faults.test_sim_failures import VOCAB_SIZE, make_prompts, run
from worker_svc.runner.sim.model import continuation

SCALE = int(os.environ.get("SIGNALBOX_FUZZ", "1"))
NUM_PEERS, NUM_LIARS = 400 * SCALE, 20 * SCALE
"""Of each kind; a liar takes longer, until frontends have dialled it."""
AT_ONCE = 4
MOST_GROWTH_BYTES = 150 << 20
TOKENS = 60
SIM = ("--runner", "sim", "--worker-set", "sim-base-ms=2", "--block-size", "4", "--workers", "2")


@pytest.fixture(scope="module")
def ring(start_ring: StartRing) -> Iterator[RunningRing]:
    return start_ring(*SIM)


async def use(ring: RunningRing, until: asyncio.Event) -> int:
    """Honest clients, one after another; returns how many were served. Asserts that each got what it should."""
    prompts, served = make_prompts(8), 0
    async with Client(ring.grpc) as client:
        while not until.is_set():
            results = await asyncio.gather(*(run(client, prompt, TOKENS) for prompt in prompts))
            for prompt, result in zip(prompts, results, strict=True):
                assert list(result.token_ids) == continuation(prompt, TOKENS, VOCAB_SIZE)
            served += len(results)
    return served


async def attack(address: str, peer: Peer, until: asyncio.Event) -> int:
    """Peers of one kind, some at a time; returns how many answers they got."""
    numbers = iter(range(NUM_LIARS if peer is liar else NUM_PEERS))

    async def go_on() -> int:
        count = 0
        for number in numbers:
            async with grpc.aio.insecure_channel(address) as channel:
                count += await peer(channel, OddMessages(f"{peer.__name__} {number}", KNOWN))
        return count

    try:
        return sum(await asyncio.gather(*(go_on() for _ in range(AT_ONCE))))
    finally:
        until.set()


def memory_of(ring: RunningRing) -> dict[int, int]:
    """Resident bytes of every service, by pid."""
    return {process.pid: process.memory_info().rss for process in ring.services()}


async def check_harmless(ring: RunningRing, address: str, peer: Peer) -> None:
    before, until = memory_of(ring), asyncio.Event()
    served, answers = await asyncio.gather(use(ring, until), attack(address, peer, until))
    assert served, "nobody was served meanwhile"
    assert answers >= 5, "what is refused at once attacks nothing"
    assert_empty(ring)
    after = memory_of(ring)
    assert after.keys() == before.keys(), f"a service has ended\n{ring.logs()}"
    grown = {pid: after[pid] - before[pid] for pid in before}
    assert max(grown.values()) < MOST_GROWTH_BYTES, grown
    assert "Traceback" not in ring.logs(), ring.logs()


@pytest.mark.timeout(120 * SCALE)
@pytest.mark.parametrize("peer", TO_SCHEDULER, ids=lambda peer: peer.__name__)
async def test_towards_a_scheduler(ring: RunningRing, peer: Peer) -> None:
    await check_harmless(ring, ring.scheduler, peer)


@pytest.mark.timeout(120 * SCALE)
async def test_towards_a_worker(ring: RunningRing) -> None:
    workers = [
        process.cmdline() for process in ring.services() if "worker_svc" in " ".join(process.cmdline())
    ]
    (address, *_) = (flag.partition("=")[2] for flag in workers[0] if flag.startswith("--listen="))
    await check_harmless(ring, address, reader)
