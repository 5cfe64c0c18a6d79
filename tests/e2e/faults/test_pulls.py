"""A conversation comes back while its worker drains: another one reads what it has of it, in real processes."""

from __future__ import annotations

import pytest

from signalbox.client import Client, Result
from tests.e2e.conftest import Launch
from tests.e2e.faults.test_drain import drain, workers_of

MOVING = ("--no-proof", "--worker-set", "hand-off=true", "--workers", "2")
PROMPT = [token % 500 for token in range(7, 407)]
"""Of the demo model: 25 blocks."""


async def ask(client: Client, prompt: list[int]) -> Result:
    return await client.generate(prompt, max_tokens=24, temperature=0, ignore_eos=True).result()


@pytest.mark.parametrize("channels", ["shared-memory", "tcp", ""])
async def test_a_conversation_comes_back_at_another_worker(channels: str, launch_ring: Launch) -> None:
    """PB1 to PB4: what was computed there is read, not computed again, and nothing of that shows."""
    ring = launch_ring(*MOVING, "--worker-set", f"transfer-channels={channels}")
    ring.wait_for("signalbox is up")
    async with Client(ring.grpc) as client:
        await drain(ring, "worker-1")
        first = await ask(client, PROMPT)
        longer = [*PROMPT, *first.token_ids, 9, 8, 7]
        expected = await ask(client, longer)
        await drain(ring, "worker-1", "--resume")
        await drain(ring, "worker-0")
        before = workers_of(ring)["worker-1"]["num_output_tokens"]
        again = await ask(client, longer)
    assert workers_of(ring)["worker-1"]["num_output_tokens"] == before + 24
    assert again.token_ids == expected.token_ids
    assert again.finished.num_cached_tokens == len(longer) // 16 * 16
