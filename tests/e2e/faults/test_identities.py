"""Two versions of a model's weights behind one name, in real processes: I7 to I9."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from signalbox.client import Client
from signalbox.protocol.model_identity import ModelIdentity
from tests.e2e.conftest import Launch, RunningRing
from tests.ports import free_ports
from worker_svc.runner.sim.model import continuation

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

OLD, NEW = ModelIdentity("old"), ModelIdentity("new")
VOCAB_SIZE = 4096
PROMPT = list(range(40))


@contextmanager
def further_worker(ring: RunningRing, name: str, weights: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another worker of the ring's model, with its own weights."""
    (port,) = free_ports(1)
    options = [f"--scheduler={ring.scheduler}", f"--listen=127.0.0.1:{port}", f"--worker-id={name}"]
    options += ["--runner=sim", "--sim-base-ms=4", f"--sim-weights={weights}", "--served-model-name=demo"]
    with (ring.log_dir / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "worker_svc", *options], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(40)


def metric(ring: RunningRing, beginning: str) -> float:
    """Sum of a frontend's samples."""
    text = urllib.request.urlopen(f"{ring.url}/metrics", timeout=10).read().decode()
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(beginning))


async def wait_for_workers(ring: RunningRing, count: int) -> None:
    async with asyncio.timeout(90):
        while heard(ring) < count:
            await asyncio.sleep(0.2)


def heard(ring: RunningRing) -> int:
    text = urllib.request.urlopen(f"{ring.url}/metrics", timeout=10).read().decode()
    lines = [line for line in text.splitlines() if line.startswith("signalbox_frontend_worker_reach{")]
    return sum('state="heard"' in line and line.endswith(" 1.0") for line in lines)


async def run_all(client: Client, count: int, num_tokens: int) -> list[asyncio.Task[list[int]]]:
    """Starts requests and returns when each has its first tokens."""
    num_begun = 0
    all_begun = asyncio.Event()

    async def one() -> list[int]:
        nonlocal num_begun
        token_ids: list[int] = []
        async for delta in client.generate(PROMPT, max_tokens=num_tokens, temperature=0, ignore_eos=True):
            num_begun += bool(delta.token_ids) and not token_ids
            token_ids += delta.token_ids
            if num_begun == count:
                all_begun.set()
        return token_ids

    tasks = [asyncio.create_task(one()) for _ in range(count)]
    async with asyncio.timeout(30):
        await all_begun.wait()
    return tasks


def pieces_of(output: list[int]) -> list[str]:
    """Under which weights it was made, piece by piece."""
    made: list[str] = []
    start = 0
    while start < len(output):
        best = ("nobody", 0)
        for identity in (OLD, NEW):
            expected = continuation([*PROMPT, *output[:start]], len(output) - start, VOCAB_SIZE, identity)
            same = next((i for i, t in enumerate(expected) if t != output[start + i]), len(expected))
            best = max(best, (identity.weights, same), key=lambda each: each[1])
        made.append(best[0])
        assert best[1], "made by nobody"
        start += best[1]
    return made


async def test_outputs_go_on_with_the_weights_that_began_them(launch_ring: Launch) -> None:
    """I9: one of two workers with the old weights is killed. Its outputs go on with the other one, though there is one
    with new weights. When the last of the old ones stops, what it cannot finish goes on with the new ones: counted."""
    options = ("--worker-set", "sim-base-ms=4", "--worker-set", "sim-weights=new")
    ring = launch_ring("--no-proof", "--runner", "sim", *options)
    ring.wait_for("signalbox is up")
    with further_worker(ring, "old-0", "old") as first, further_worker(ring, "old-1", "old") as second:
        await wait_for_workers(ring, 3)
        async with asyncio.timeout(30):  # told with the scheduler's next look around
            while "workers of 'demo' differ" not in ring.logs():
                await asyncio.sleep(0.1)
        async with Client(ring.grpc) as client:
            tasks = await run_all(client, 18, 900)
            second.kill()
            made = [pieces_of(output) for output in await asyncio.gather(*tasks)]
            assert {tuple(pieces) for pieces in made} == {("old",), ("new",)}, made
            assert not metric(ring, "signalbox_frontend_other_identities_total")
            assert metric(ring, "signalbox_frontend_losses_total") > 0
            tasks = await run_all(client, 6, 900)
            first.terminate()
            made = [pieces_of(output) for output in await asyncio.gather(*tasks)]
            assert {tuple(pieces) for pieces in made} == {("old", "new"), ("new",)}, made
            moved = made.count(["old", "new"])
            assert metric(ring, "signalbox_frontend_other_identities_total") == moved > 0
