"""`signalbox drain`: requests that run go on to their end, new ones go elsewhere or are refused."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

from signalbox.client import Client, Generation
from signalbox.errors import UnavailableError
from tests.e2e.conftest import Launch, RunningRing

SIM = ("--no-proof", "--runner", "sim", "--worker-set", "sim-base-ms=5")


def signalbox(ring: RunningRing, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "signalbox", *arguments, "--scheduler", ring.scheduler]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


async def drain(ring: RunningRing, *arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(signalbox, ring, "drain", *arguments)


def workers_of(ring: RunningRing) -> dict[str, dict[str, Any]]:
    workers = json.loads(signalbox(ring, "status", "--json").stdout)["workers"]
    return {worker["worker_id"]: worker for worker in workers}


def generate(client: Client, count: int) -> Generation:
    return client.generate(list(range(20)), max_tokens=count, temperature=0, ignore_eos=True)


async def test_a_drained_worker_gets_nothing_new(launch_ring: Launch) -> None:
    ring = launch_ring(*SIM, "--workers", "2")
    ring.wait_for("signalbox is up")
    assert (await drain(ring, "worker-1")).stdout == (
        "worker-1 takes nothing new; 0 requests there\nworker-1 is drained\n"
    )
    async with Client(ring.grpc) as client:
        await asyncio.gather(*(generate(client, 10).result() for _ in range(8)))
        found = workers_of(ring)
        assert (found["worker-0"]["num_output_tokens"], found["worker-1"]["num_output_tokens"]) == (80, 0)
        assert found["worker-1"]["draining"] and not found["worker-0"]["draining"]
        assert "drained" in signalbox(ring, "status").stdout
        assert (await drain(ring, "worker-1", "--resume")).returncode == 0
        await asyncio.gather(*(generate(client, 10).result() for _ in range(8)))
    assert workers_of(ring)["worker-1"]["num_output_tokens"] > 0
    refused = await drain(ring, "worker-7")
    assert (refused.returncode, refused.stderr) == (
        1,
        "signalbox: there is no worker worker-7; known are worker-0, worker-1\n",
    )


@pytest.mark.slow
async def test_a_ring_ends_when_its_last_request_has_ended(launch_ring: Launch) -> None:
    ring = launch_ring(*SIM)
    ring.wait_for("signalbox is up")
    async with Client(ring.grpc) as client:
        running = generate(client, 800)
        await anext(running)
        impatient = await drain(ring, "--timeout", "0.3")
        assert impatient.returncode == 1
        assert "requests still run after 0.3 s; the workers go on draining" in impatient.stderr
        with pytest.raises(UnavailableError, match="being drained"):
            await generate(client, 1).result()
        draining = asyncio.create_task(drain(ring))
        result = await running.result()
        assert result.finished.num_output_tokens == 800
        done = await draining
    assert done.stdout == "worker-0 takes nothing new; 1 request there\nworker-0 is drained\n"
    assert await asyncio.to_thread(ring.wait_for_end) == 0
    assert "drained: no request is left\n" in ring.output
