"""A model that fails or hangs, simulated: what it does to the requests concerned, and to nobody else."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from signalbox.client import Client, FinishReason, Result
from signalbox.errors import InternalError
from signalbox.links import rpc
from tests.e2e.conftest import RunningRing, StartRing
from worker_svc.runner.sim.model import continuation

SIM = ("--runner", "sim", "--worker-set", "sim-base-ms=2", "--block-size", "4")
VOCAB_SIZE = 4096
OUTPUT_TOKENS = 30
BAD = 4000
"""The token that the model fails on."""


def make_prompts(count: int) -> list[list[int]]:
    """Without the token that fails."""
    numbers = random.Random(count)
    return [[numbers.randrange(BAD) for _ in range(numbers.randrange(2, 30))] for _ in range(count)]


async def run(client: Client, prompt: list[int], max_tokens: int = OUTPUT_TOKENS) -> Result:
    return await client.generate(prompt, max_tokens=max_tokens, temperature=0, ignore_eos=True).result()


def assert_right(prompt: list[int], result: Result | BaseException) -> None:
    assert isinstance(result, Result), result
    assert list(result.token_ids) == continuation(prompt, OUTPUT_TOKENS, VOCAB_SIZE)
    assert result.finished.reason == FinishReason.LENGTH


@pytest.mark.sampled
@pytest.mark.parametrize("depth", ["1", "2"])
async def test_a_prompt_that_the_model_fails_on_fails_alone(start_ring: StartRing, depth: str) -> None:
    options = ("--max-inflight-steps", depth, "--worker-set", f"sim-fail-token={BAD}")
    ring = start_ring(*SIM, *options)
    prompts = make_prompts(12)
    bad = {2, 3, 7}
    for number in bad:
        prompts[number][-1] = BAD
    async with Client(ring.grpc) as client:
        results = await asyncio.gather(*(run(client, p) for p in prompts), return_exceptions=True)
        for number, (prompt, result) in enumerate(zip(prompts, results, strict=True)):
            if number in bad:
                assert isinstance(result, InternalError)
                assert f"prompts with token {BAD} were to fail" in result.message
            else:
                assert_right(prompt, result)
        assert_right(prompts[0], await run(client, prompts[0]))


async def test_a_step_that_fails_as_a_whole_ends_its_requests_and_no_later_ones(
    start_ring: StartRing,
) -> None:
    """U1."""
    ring = start_ring(*SIM, "--worker-set", "sim-fail-step=10")
    prompts = make_prompts(4)
    async with Client(ring.grpc) as client:
        results = await asyncio.gather(*(run(client, p) for p in prompts), return_exceptions=True)
        failed = [result for result in results if isinstance(result, InternalError)]
        assert failed
        assert all("step 10 was to fail" in result.message for result in failed)
        for prompt, result in zip(prompts, results, strict=True):
            if not isinstance(result, InternalError):
                assert_right(prompt, result)
        for prompt in prompts:
            assert_right(prompt, await run(client, prompt))


async def liveness(ring: RunningRing, worker: str) -> str:
    async with rpc.channel(worker) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=rpc.LIVENESS), timeout=5)
        except grpc.aio.AioRpcError as error:
            return error.code().name
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


@pytest.mark.slow
async def test_a_step_that_takes_long_ends_nothing_and_all_go_on_behind_it(start_ring: StartRing) -> None:
    """U6: below the limit of a step."""
    options = [f"sim-hang-token={BAD}", "sim-hang-ms=2500"]
    ring = start_ring(*SIM, *(part for option in options for part in ("--worker-set", option)))
    command = [sys.executable, "-m", "signalbox", "status", "--scheduler", ring.scheduler, "--json"]
    status = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    worker = status.partition('"address": "')[2].partition('"')[0]
    assert await liveness(ring, worker) == "SERVING"
    prompts = [[*make_prompts(1)[0], BAD], *make_prompts(3)]
    async with Client(ring.grpc) as client:
        running = asyncio.gather(*(run(client, prompt) for prompt in prompts))
        seen = set()
        while not running.done():
            seen.add(await liveness(ring, worker))
            await asyncio.sleep(0.05)
        for prompt, result in zip(prompts, await running, strict=True):
            assert_right(prompt, result)
    assert seen == {"SERVING"}
