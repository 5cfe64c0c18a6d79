"""Blocks that are swapped beside the steps, through all services."""

from __future__ import annotations

import asyncio

import pytest

from signalbox.client import Client
from tests.e2e.conftest import StartRing
from worker_svc.runner.sim.model import continuation

VOCAB_SIZE = 4096
OPTIONS = (
    "--runner", "sim", "--block-size", "4",
    "--worker-set", "sim-base-ms=2",
    "--worker-set", "sim-copy-ms-per-block=1",
    "--worker-set", "num-blocks=80",
    "--worker-set", "num-host-blocks=400",
    "--scheduler-set", "side-copy-blocks=4",
)  # fmt: skip


@pytest.mark.slow
async def test_a_prompt_that_was_swapped_out_comes_back_while_another_request_runs(
    start_ring: StartRing,
) -> None:
    """X1, X2: the device holds one long prompt at a time; each round fetches from the host tier what the last one
    evicted."""
    ring = start_ring(*OPTIONS)
    prompts = [[100 * number + i for i in range(200)] for number in range(1, 4)]
    cached = []
    async with Client(ring.grpc) as client:

        async def run(prompt: list[int], max_tokens: int) -> int:
            call = client.generate(prompt, max_tokens=max_tokens, temperature=0, ignore_eos=True)
            result = await call.result()
            assert list(result.token_ids) == continuation(prompt, max_tokens, VOCAB_SIZE)
            return result.finished.num_cached_tokens

        beside = asyncio.create_task(run([1, 2, 3], 60))
        for _ in range(2):
            for prompt in prompts:
                cached.append(await run(prompt, 5))
        await beside
    assert cached[:3] == [0, 0, 0]
    assert min(cached[3:]) >= 100, "it was computed again"
