"""Requests whose numbers are not finite, on a real ring (N1 to N3)."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from signalbox.client import Client
from signalbox.errors import InternalError, UnavailableError
from tests.e2e.conftest import StartRing
from tests.e2e.faults.test_sim_failures import BAD, SIM, assert_right, make_prompts, run

RING = (*SIM, "--restart-workers", "--worker-set", f"sim-nan-token={BAD}")


@pytest.mark.sampled
@pytest.mark.parametrize("depth", ["1", "2"])
async def test_a_request_without_numbers_fails_alone(start_ring: StartRing, depth: str) -> None:
    """N1, N2: also when others share what it has published before, and do not have the token themselves."""
    ring = start_ring(*RING, "--max-inflight-steps", depth)
    prompts = [[*prompt, *range(40)] for prompt in make_prompts(6)]
    async with Client(ring.grpc) as client:
        bad = [run(client, [*prompt, BAD, 1]) for prompt in prompts[:2]]
        good = asyncio.gather(*(run(client, prompt) for prompt in prompts))
        for result in await asyncio.gather(*bad, return_exceptions=True):
            assert isinstance(result, InternalError) and "not finite" in result.message
        for prompt, result in zip(prompts, await good, strict=True):
            assert_right(prompt, result)
        assert_right(prompts[0], await run(client, prompts[0]))
    assert not any("started again" in line for line in ring.output)


@pytest.mark.slow
async def test_requests_without_numbers_one_after_the_other_end_the_worker(start_ring: StartRing) -> None:
    """N3: it says why, and another takes its place."""
    ring = start_ring(*RING, "--worker-set", "bad-row-limit=2")
    (prompt,) = make_prompts(1)
    async with Client(ring.grpc) as client:
        for number in range(2):
            with pytest.raises(InternalError, match="not finite"):
                await run(client, [*prompt, number, BAD])
        result = None
        async with asyncio.timeout(60):
            while result is None:
                with suppress(UnavailableError):  # no worker is there for a moment
                    result = await run(client, prompt)
                await asyncio.sleep(0.1)
        assert_right(prompt, result)
    assert any("worker-0 is started again" in line for line in ring.output)
    log = (ring.log_dir / "scheduler.log").read_text()
    assert "2 requests in a row had hidden states that are not finite" in log, log
