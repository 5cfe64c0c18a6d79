"""Five times what a ring can do, for minutes: memory, goodput, and what the refused are told."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from tests.chaos.memory import Memory
from tests.chaos.open_load import goodput, offer
from tests.chaos.ring import Ring, Shape, count_losses, open_ring

PROMPT_TOKENS = 128
OUTPUT_TOKENS = 64
CALM_S = 60.0
"""How long the load is what the ring can do."""
FILLING_S = 30.0
"""At the begin of a load, when queues fill, nothing is measured."""
TIMES = 5
MOST_GROWTH = 0.05
"""Of the memory of a service from the second fifth of the overload to the last."""
LEAST_GOODPUT = 0.9
SHAPE = Shape(
    runner="sim",
    scheduler_flags=("--max-num-seqs=32",),
    worker_flags=("--sim-base-ms=50",),
    frontend_flags=("--max-open-requests=1024",),
)
CAPACITY = 2 * 32 / 0.050 / OUTPUT_TOKENS
"""Requests per second that two workers with 32 rows each can finish at most, prompts not counted."""


async def run_overload(minutes: float, tree: Path, say: Callable[[str], None]) -> dict[str, object]:
    """What was measured; `failures` names what broke a promise."""
    async with open_ring(SHAPE, tree) as ring:
        memory = Memory(ring)
        watching = asyncio.create_task(memory.watch())
        try:
            rate = await _capacity(ring)
            say(f"the ring can do {rate:.1f} requests per second")
            calm = await _load(ring, rate, CALM_S)
            say(f"at 1x: {calm}")
            start = time.monotonic()
            seconds = minutes * 60
            loaded = await _load(ring, TIMES * rate, seconds)
            say(f"at {TIMES}x: {loaded}")
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
        rss = {name: memory.over(name, start, start + seconds) for name in ring.services}
        losses = dict(await count_losses(ring))
    result = {
        "requests_per_s": round(rate, 2),
        "calm": calm,
        "overload": loaded,
        "rss_mib": rss,
        "losses": losses,
    }
    return result | {"minutes": minutes, "failures": _failures(calm, loaded, rss, losses)}


async def _capacity(ring: Ring) -> float:
    """Requests per second when there are always some that wait."""
    started = time.monotonic()
    outcomes = await offer(ring, 2 * CAPACITY, FILLING_S, PROMPT_TOKENS, OUTPUT_TOKENS)
    return goodput(outcomes, started + FILLING_S / 3, started + FILLING_S) / OUTPUT_TOKENS


async def _load(ring: Ring, rate: float, seconds: float) -> dict[str, float]:
    started = time.monotonic()
    outcomes = await offer(ring, rate, seconds, PROMPT_TOKENS, OUTPUT_TOKENS)
    filled = min(FILLING_S, seconds / 2)
    refused = [outcome for outcome in outcomes if outcome.was_refused]
    return {
        "offered_per_s": round(rate, 1),
        "requests": len(outcomes),
        "refused": len(refused),
        "refused_without_retry_after": sum(outcome.retry_after is None for outcome in refused),
        "failed": sum(bool(outcome.error) and not outcome.was_refused for outcome in outcomes),
        "goodput_tokens_per_s": round(goodput(outcomes, started + filled, started + seconds), 1),
    }


def _failures(
    calm: dict[str, float], loaded: dict[str, float], rss: dict[str, list[float]], losses: dict[str, int]
) -> list[str]:
    failures = []
    if loaded["goodput_tokens_per_s"] < LEAST_GOODPUT * calm["goodput_tokens_per_s"]:
        failures.append("goodput fell")
    for load in (calm, loaded):
        failures += [name for name in ("refused_without_retry_after", "failed") if load[name]]
    failures += [
        f"{name} grows" for name, points in rss.items() if points[-1] > points[1] * (1 + MOST_GROWTH)
    ]
    failures += [f"{count} lost: {cause}" for cause, count in losses.items()]
    return failures
