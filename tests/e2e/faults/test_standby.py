"""`signalbox up --standby`: the leader is killed under streams, again and again (docs/liveness.md, B1 to B3)."""

from __future__ import annotations

import asyncio
import random
import time
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from signalbox.client import Client, Delta
from signalbox.links.leader import Leader, leader_search
from tests.e2e.conftest import Launch, RunningRing
from tests.ports import free_ports
from worker_svc.runner.sim.model import continuation

VOCAB_SIZE = 4096
NUM_STREAMS = 8
STREAM_TOKENS = 900
SHORT_TOKENS = 20
STEP_MS = 10
NEXT_LEADER_S = 5.0
NEW_REQUEST_S = 8.0
"""Between the death of the leader and the first token of a request that comes at that moment. It is tenths of a second
where the machine is not busy with other tests."""


class Streams:
    """Requests that run while leaders die."""

    def __init__(self, client: Client, seed: int) -> None:
        numbers = random.Random(seed)
        self._client = client
        self._prompts = [[numbers.randrange(VOCAB_SIZE) for _ in range(9)] for _ in range(NUM_STREAMS)]
        self.arrivals: list[list[float]] = [[] for _ in self._prompts]
        """When the deltas of each came."""
        self._tasks = [asyncio.create_task(self._read(index)) for index in range(NUM_STREAMS)]

    async def _read(self, index: int) -> list[Delta]:
        deltas = []
        prompt, options = self._prompts[index], {"max_tokens": STREAM_TOKENS, "temperature": 0.0}
        async for delta in self._client.generate(prompt, ignore_eos=True, **options):  # type: ignore[arg-type]
            deltas.append(delta)
            self.arrivals[index].append(time.monotonic())
        return deltas

    async def all_run(self) -> None:
        """Until each has given tokens; none may have ended."""
        counts = [len(arrivals) for arrivals in self.arrivals]
        async with asyncio.timeout(60):
            while any(len(now) <= then for now, then in zip(self.arrivals, counts, strict=True)):
                assert not any(task.done() for task in self._tasks)
                await asyncio.sleep(0.01)

    async def all_end_right(self) -> None:
        """Each once, with the tokens of an undisturbed run."""
        async with asyncio.timeout(120):
            results = await asyncio.gather(*self._tasks)
        for prompt, deltas in zip(self._prompts, results, strict=True):
            tokens = [token for delta in deltas for token in delta.token_ids]
            assert tokens == continuation(prompt, STREAM_TOKENS, VOCAB_SIZE)
            assert [delta.finished is not None for delta in deltas].count(True) == 1

    def longest_pause_s(self) -> float:
        return max(later - earlier for arrivals in self.arrivals for earlier, later in pairwise(arrivals))


class StandbyRing:
    """A ring with two schedulers, and the hand that kills the one that leads."""

    def __init__(self, ring: RunningRing, standby: str) -> None:
        self.ring = ring
        self.addresses = f"{ring.scheduler},{standby}"

    async def find(self) -> Leader:
        async with leader_search(self.addresses) as search:
            return await search.find(NEXT_LEADER_S)

    async def kill_leader(self) -> Leader:
        """SIGKILL; returns who it was."""
        leader = await self.find()
        (victim,) = [each for each in self.ring.children() if f"--listen={leader.address}" in each.cmdline()]
        victim.kill()
        return leader

    async def standby_is_back(self) -> None:
        """Until the process that was killed has been started again and stands by."""
        leader = await self.find()
        (other,) = set(self.addresses.split(",")) - {leader.address}
        async with asyncio.timeout(60), leader_search(other) as search:
            while (await search.find(10)).address != leader.address:
                await asyncio.sleep(0.05)


@pytest.fixture
def standby_ring(launch_ring: Launch, tmp_path: Path) -> StandbyRing:
    (port,) = free_ports(1)
    standby = f"127.0.0.1:{port}"
    sim = ("--no-proof", "--runner", "sim", "--workers", "2", "--worker-set", f"sim-base-ms={STEP_MS}")
    ring = launch_ring(*sim, "--standby", standby, "--block-size", "4", "--num-blocks", "2048")
    ring.wait_for("signalbox is up")
    return StandbyRing(ring, standby)


async def first_token_s(client: Client) -> float:
    """How long a new request waits, and that it ends right."""
    prompt = [random.randrange(VOCAB_SIZE) for _ in range(9)]
    started = time.monotonic()
    tokens, first_s = [], None
    async for delta in client.generate(prompt, max_tokens=SHORT_TOKENS, temperature=0, ignore_eos=True):
        first_s = first_s or time.monotonic() - started
        tokens += delta.token_ids
    assert tokens == continuation(prompt, SHORT_TOKENS, VOCAB_SIZE) and first_s is not None
    return first_s


@pytest.mark.slow
@pytest.mark.timeout(280)
async def test_streams_go_on_and_requests_start_when_leaders_are_killed(standby_ring: StandbyRing) -> None:
    """B1: none is lost, and the ring stays: whoever died is started again and stands by."""
    async with Client(standby_ring.ring.grpc) as client:
        for seed in range(2):
            streams = Streams(client, seed)
            await streams.all_run()
            old = await standby_ring.kill_leader()
            waits_s = await asyncio.gather(*(first_token_s(client) for _ in range(4)))
            new = await standby_ring.find()
            assert (new.term, new.instance, new.address) != (old.term, old.instance, old.address)
            assert new.term > old.term
            await streams.all_run()
            await streams.all_end_right()
            print(f"new requests waited {max(waits_s):.2f} s, streams {streams.longest_pause_s():.2f} s")
            assert max(waits_s) < NEW_REQUEST_S
            await standby_ring.standby_is_back()
    ring = standby_ring.ring
    assert sum("is started again" in line for line in ring.output) == 2
    assert ring.stop() == 0, "".join(ring.output)


def is_dead(process: psutil.Process) -> bool:
    """With all its threads, and waits for its parent."""
    threads = list(Path(f"/proc/{process.pid}/task").iterdir())
    return process.status() == psutil.STATUS_ZOMBIE and len(threads) == 1


@pytest.mark.fresh
async def test_a_ring_ends_when_both_schedulers_do(standby_ring: StandbyRing) -> None:
    """B1: with nobody to stand in, as without a standby. Between two looks, else the first would be started again."""
    schedulers = [each for each in standby_ring.ring.children() if "scheduler_svc" in each.cmdline()]
    assert len(schedulers) == 2
    supervisor = psutil.Process(standby_ring.ring.process.pid)
    supervisor.suspend()
    for scheduler in schedulers:
        scheduler.kill()
    async with asyncio.timeout(30):  # whichever is there for a moment longer would stand in
        while not all(is_dead(scheduler) for scheduler in schedulers):
            await asyncio.sleep(0.01)
    supervisor.resume()
    assert standby_ring.ring.wait_for_end() == 1
    _, alive = psutil.wait_procs(schedulers, timeout=5)
    assert alive == []
