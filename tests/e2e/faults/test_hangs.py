"""A request that hangs its worker, beside others that must not notice (U6 to U9, S1 to S4)."""

from __future__ import annotations

import asyncio

import pytest

from signalbox.client import Client, Result
from signalbox.errors import SignalboxError
from tests.e2e.conftest import StartRing
from tests.e2e.faults.test_poison import deaths
from tests.e2e.faults.test_sim_failures import BAD, VOCAB_SIZE, make_prompts, run
from worker_svc.runner.sim.model import continuation

LIMIT_MS = 1000
RING = (
    *("--runner", "sim", "--block-size", "4", "--workers", "3", "--restart-workers"),
    *("--worker-set", "sim-base-ms=20", "--worker-set", f"sim-hang-token={BAD}"),
    *("--worker-set", "sim-hang-ms=3600000", "--scheduler-set", f"step-hang-ms={LIMIT_MS}"),
)
INNOCENTS = 6
LONG = 300
"""Tokens of an innocent: they run until the culprit has ended."""


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_request_that_hangs_ends_with_one_error_and_costs_two_workers(start_ring: StartRing) -> None:
    ring = start_ring(*RING)
    prompts = make_prompts(INNOCENTS)
    async with Client(ring.grpc) as client:
        innocents = [asyncio.create_task(run(client, prompt, LONG)) for prompt in prompts]
        await asyncio.sleep(2)  # until each worker's speed is known
        with pytest.raises(SignalboxError) as error:
            await run(client, [BAD, *prompts[0][:2]])
        results = await asyncio.gather(*innocents, return_exceptions=True)
    assert "2 workers, one after the other, crashed or hung" in error.value.message
    assert "hung: it ran for more than 1.0 s" in error.value.message
    for prompt, result in zip(prompts, results, strict=True):
        assert isinstance(result, Result), result
        assert list(result.token_ids) == continuation(prompt, LONG, VOCAB_SIZE)
    async with asyncio.timeout(30):
        while len(deaths(ring)) < 2:
            await asyncio.sleep(0.1)
    await asyncio.sleep(2 * LIMIT_MS / 1e3)
    assert len(deaths(ring)) == 2, ring.logs()
