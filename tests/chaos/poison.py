"""A request that crashes, or hangs, every worker which computes it, beside others that must not notice."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import grpc

from signalbox.client import Client
from signalbox.errors import SignalboxError
from tests.chaos.ring import Ring, Shape, keep_logs, open_ring
from worker_svc.runner.sim.model import continuation

POISON = 4000
"""The token that the simulated model does not survive."""
HANG_MS = 600_000
NUM_WORKERS = 4
VOCABULARY = 4096
CRASHES = Shape(
    runner="sim",
    num_workers=NUM_WORKERS,
    worker_flags=(f"--sim-crash-token={POISON}", "--sim-base-ms=20"),
)
HANGS = replace(
    CRASHES,
    worker_flags=(f"--sim-hang-token={POISON}", f"--sim-hang-ms={HANG_MS}", "--sim-base-ms=20"),
)
TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Poisoned:
    """What one poison has done."""

    dead_workers: int
    """Processes that ended."""
    innocents: int
    failed: int
    """Innocents with an error."""
    wrong: int
    """Innocents with other tokens than alone."""
    error: str
    """What the poison's client was told; empty: it was told nothing."""
    seconds: float
    """Until then."""
    longest_gap_s: float
    """Longest time for which an innocent stood still."""

    @property
    def is_right(self) -> bool:
        """As docs/reliability.md promises."""
        return self.dead_workers <= 2 and not self.failed and not self.wrong and bool(self.error)


async def run_poison(
    times: int, innocents: int, num_tokens: int, tree: Path, say: Callable[[str], None], *, hangs: bool
) -> list[Poisoned]:
    """One poison beside so many innocents, on a ring of its own each time. `hangs`: it hangs workers, and does not
    crash them."""
    results = []
    for turn in range(times):
        async with open_ring(HANGS if hangs else CRASHES, tree) as ring:
            results.append(await _run_one(ring, innocents, num_tokens, turn))
            say(f"poison {turn + 1} of {times}: {results[-1]}")
            if not results[-1].is_right:
                keep_logs(ring)
                say(f"logs stay in {ring.folder}")
    return results


async def _run_one(ring: Ring, innocents: int, num_tokens: int, turn: int) -> Poisoned:
    numbers = random.Random(turn)
    prompts = [[numbers.randrange(POISON) for _ in range(numbers.randrange(8, 60))] for _ in range(innocents)]
    async with Client(ring.frontends[0].grpc) as client:
        gaps = [0.0] * innocents
        tasks = [
            asyncio.create_task(_generate(client, prompt, num_tokens, gaps, number))
            for number, prompt in enumerate(prompts)
        ]
        await asyncio.sleep(3)  # until a worker's speed is known
        started = time.monotonic()
        poison = [*prompts[0][:4], POISON]
        told = await _generate(client, poison, num_tokens, [0.0], 0)
        seconds = time.monotonic() - started
        results = await asyncio.gather(*tasks)
    failed = [result for result in results if isinstance(result, str)]
    right = [continuation(prompt, num_tokens, VOCABULARY) for prompt in prompts]
    wrong = sum(a != b for a, b in zip(results, right, strict=True)) - len(failed)
    dead = sum(not ring.services[name].runs for name in ring.shape.workers)
    error = told if isinstance(told, str) else ""
    longest_gap_s = round(max(gaps), 2)
    return Poisoned(dead, innocents, len(failed), wrong, error, round(seconds, 2), longest_gap_s)


async def _generate(
    client: Client, prompt: list[int], num_tokens: int, gaps: list[float], number: int
) -> list[int] | str:
    """Tokens, or the error. Puts the longest time without a new one into `gaps`."""
    call = client.generate(prompt, max_tokens=num_tokens, temperature=0, ignore_eos=True, timeout_s=TIMEOUT_S)
    tokens, last = list[int](), time.monotonic()
    try:
        async for delta in call:
            now = time.monotonic()
            gaps[number], last = max(gaps[number], now - last), now
            tokens += delta.token_ids
        return tokens
    except (SignalboxError, grpc.aio.AioRpcError) as error:
        return f"{type(error).__name__}: {error}"
