"""Whatever the options, the tokens are the same: the sim runner reads them back through the block tables."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from typing import Any

import pytest

from signalbox.client import Client
from tests.e2e.conftest import RunningRing, StartRing
from tests.pairs import every_other
from worker_svc.runner.sim.model import continuation

SIM = ("--runner", "sim", "--worker-set", "sim-base-ms=1", "--block-size", "4")
VOCAB_SIZE = 4096
OUTPUT_TOKENS = 40
NUM_REQUESTS = 24


def make_prompts() -> list[list[int]]:
    """Half of them begin alike, so that the prefix cache has something to do."""
    numbers = random.Random(0)
    shared = [numbers.randrange(VOCAB_SIZE) for _ in range(24)]
    lengths = [numbers.randrange(1, 60) for _ in range(NUM_REQUESTS)]
    prompts = [[numbers.randrange(VOCAB_SIZE) for _ in range(length)] for length in lengths]
    return [shared + prompt if index % 2 else prompt for index, prompt in enumerate(prompts)]


async def assert_all_right(ring: RunningRing) -> None:
    """All prompts at once; every output is what an undisturbed run gives."""
    prompts = make_prompts()
    async with Client(ring.grpc) as client:
        options: dict[str, Any] = {"max_tokens": OUTPUT_TOKENS, "temperature": 0, "ignore_eos": True}
        results = await asyncio.gather(*(client.generate(prompt, **options).result() for prompt in prompts))
    for prompt, result in zip(prompts, results, strict=True):
        assert list(result.token_ids) == continuation(prompt, OUTPUT_TOKENS, VOCAB_SIZE)


def workers_of(ring: RunningRing) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "signalbox", "status", "--scheduler", ring.scheduler, "--json"]
    output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    workers: list[dict[str, Any]] = json.loads(output)["workers"]
    return workers


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "num_blocks"), every_other(("1", "2", "4"), ("40", "1024")))
async def test_tokens_do_not_depend_on_depth_and_cache(
    start_ring: StartRing, depth: str, num_blocks: str
) -> None:
    """Y1, L17."""
    ring = start_ring(*SIM, "--max-inflight-steps", depth, "--num-blocks", num_blocks)
    for _ in range(2):
        await assert_all_right(ring)
    (worker,) = workers_of(ring)
    assert (worker["num_preemptions"] > 0) == (num_blocks == "40")
    assert worker["num_prefix_hit_tokens"] > 0
    assert worker["num_output_tokens"] == 2 * NUM_REQUESTS * OUTPUT_TOKENS


@pytest.mark.slow
async def test_two_workers_share_the_requests(start_ring: StartRing) -> None:
    ring = start_ring(*SIM, "--workers", "2", "--num-blocks", "512")
    await assert_all_right(ring)
    counts = [worker["num_output_tokens"] for worker in workers_of(ring)]
    assert len(counts) == 2
    assert all(counts)
    assert sum(counts) == NUM_REQUESTS * OUTPUT_TOKENS
