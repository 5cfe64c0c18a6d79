"""Workers behind a relay, as processes: requests run, and whatever dies, each ends once and with the right tokens."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.faults.relayed_ring import WORKERS, RelayedRing
from tests.e2e.faults.streams import OUTPUT_TOKENS, Streams

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


def slots_held(ring: RelayedRing) -> list[int]:
    """How many requests each worker brought with each hello, in the order of the hellos."""
    pattern = r"worker (worker-\d) attached: \d+ blocks, (\d+) slots held"
    return [int(held) for _, held in re.findall(pattern, ring.log("scheduler"))]


async def test_two_workers_behind_a_relay_serve_requests(ring: RelayedRing) -> None:
    await Streams(ring.client(), NUM_REQUESTS).assert_all_end_once()
    workers = await ring.workers()
    assert all(worker.num_output_tokens for worker in workers.values())
    assert sum(worker.num_output_tokens for worker in workers.values()) == NUM_REQUESTS * OUTPUT_TOKENS
    assert "relay relay-0 attached" in ring.log("scheduler")


@pytest.mark.fresh
@pytest.mark.slow
async def test_requests_survive_their_relay(ring: RelayedRing) -> None:
    streams = Streams(ring.client(), NUM_REQUESTS)
    await streams.all_run()
    ring.kill("relay")
    await ring.attached()
    ring.start("relay")
    await streams.assert_all_end_once()
    assert slots_held(ring)[:2] == [0, 0]
    assert sum(slots_held(ring)[2:]) == NUM_REQUESTS, "the requests came back with the workers' snapshots"


@pytest.mark.slow
async def test_requests_survive_the_scheduler_behind_the_relay(ring: RelayedRing) -> None:
    streams = Streams(ring.client(), NUM_REQUESTS)
    await streams.all_run()
    ring.kill("scheduler")
    ring.start("scheduler")
    await streams.assert_all_end_once()
    await ring.attached(*WORKERS)  # the requests may be through, alone, before a scheduler has started
    assert sum(slots_held(ring)[2:]) == NUM_REQUESTS


@pytest.mark.slow
async def test_a_killed_worker_disturbs_no_other_of_its_relay(ring: RelayedRing) -> None:
    streams = Streams(ring.client(), NUM_REQUESTS)
    await streams.all_run()
    before = (await ring.workers())["worker-0"].num_steps
    ring.kill("worker-1")
    await ring.attached("worker-0")
    ring.start("worker-1")
    await streams.assert_all_end_once()
    await ring.attached(*WORKERS)  # the requests may be through before a process has started
    assert ring.log("scheduler").count("worker worker-0 attached") == 1
    assert ring.log("scheduler").count("worker worker-1 attached") == 2
    assert ring.log("scheduler").count("relay relay-0 attached") == 1
    assert (await ring.workers())["worker-0"].num_steps > before
