"""A request that crashes its worker, beside others that must not notice (E2, E11, S1 to S4)."""

from __future__ import annotations

import asyncio
import os
import re
import signal

import pytest

from signalbox.client import Client, Result
from signalbox.errors import SignalboxError
from tests.e2e.conftest import RunningRing, StartRing
from tests.e2e.faults.test_sim_failures import BAD, OUTPUT_TOKENS, VOCAB_SIZE, assert_right, make_prompts, run
from worker_svc.runner.sim.model import continuation

RING = (
    *("--runner", "sim", "--block-size", "4", "--workers", "3", "--restart-workers"),
    *("--worker-set", "sim-base-ms=20", "--worker-set", f"sim-crash-token={BAD}"),
)
INNOCENTS = 12
LONG = 150
"""Tokens of an innocent: they run until the poison has ended."""


def deaths(ring: RunningRing) -> list[str]:
    """Workers that were started again, by what `signalbox up` has said."""
    return re.findall(r"^(worker-\d) is started again", "".join(ring.output), re.M)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_poison_ends_with_one_error_and_costs_two_workers_at_most(start_ring: StartRing) -> None:
    ring = start_ring(*RING)
    before = len(deaths(ring))
    prompts = make_prompts(INNOCENTS)
    async with Client(ring.grpc) as client:
        innocents = [asyncio.create_task(run(client, prompt, LONG)) for prompt in prompts]
        await asyncio.sleep(0.5)
        with pytest.raises(SignalboxError) as error:
            await run(client, [*prompts[0], BAD])
        results = await asyncio.gather(*innocents, return_exceptions=True)
    assert "crash" in error.value.message
    for prompt, result in zip(prompts, results, strict=True):
        assert isinstance(result, Result), result
        assert list(result.token_ids) == continuation(prompt, LONG, VOCAB_SIZE)
    await asyncio.sleep(2)
    assert 1 <= len(deaths(ring)) - before <= 2, ring.logs()


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_worker_that_is_killed_makes_nobody_a_suspect(start_ring: StartRing) -> None:
    """E2: its guardian says that it was killed, and its requests go on elsewhere at once."""
    ring = start_ring(*RING)
    prompts = make_prompts(6)
    before = len(deaths(ring))
    async with Client(ring.grpc) as client:
        running = [asyncio.create_task(run(client, prompt, OUTPUT_TOKENS)) for prompt in prompts]
        await asyncio.sleep(0.2)
        os.kill(worker_pid(ring, "worker-1"), signal.SIGKILL)
        for prompt, result in zip(prompts, await asyncio.gather(*running), strict=True):
            assert_right(prompt, result)
        async with asyncio.timeout(30):
            while len(deaths(ring)) == before:
                await asyncio.sleep(0.1)
    log = (ring.log_dir / "scheduler.log").read_text()
    assert "worker worker-1 killed: it was" in log, log


def worker_pid(ring: RunningRing, name: str) -> int:
    """The process that was started, whose guardian is its child."""
    (worker,) = [child for child in ring.services() if f"--worker-id={name}" in child.cmdline()]
    return worker.pid
