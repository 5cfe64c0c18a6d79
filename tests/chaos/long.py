"""Many long streams while every service is restarted, one by one, again and again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from tests.chaos.kinds import Ask
from tests.chaos.lanes import Lanes
from tests.chaos.outcome import Outcome
from tests.chaos.ring import Ring, Shape, keep_logs, open_ring
from tests.chaos.tally import Tally, Window
from tests.chaos.trial import make_reference

PROMPTS = 25
"""Different ones; an undisturbed ring makes each once, for comparison."""
BLOCK_SIZE = 16
PAUSE_S = 1.0
"""Between two restarts."""


def make_long_asks(num_tokens: int) -> list[Ask]:
    """Greedy completions of token ids, which the sim runner can make."""
    body = {"model": "demo", "max_tokens": num_tokens, "ignore_eos": True, "temperature": 0}
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    return [
        Ask("long", "http", body | {"prompt": [number * 37 + i for i in range(40)]})
        for number in range(PROMPTS)
    ]


def make_shape(at_once: int, num_tokens: int) -> Shape:
    """Each of the workers has room for all streams."""
    blocks = at_once * (num_tokens // BLOCK_SIZE + 6)
    return Shape(
        runner="sim",
        num_frontends=2,
        scheduler_flags=(f"--max-num-seqs={at_once}", f"--max-num-batched-tokens={2 * at_once + 2048}"),
        worker_flags=(
            f"--num-blocks={blocks}",
            f"--num-slots={at_once + 64}",
            f"--max-num-batched-tokens={2 * at_once + 2048}",
            "--sim-base-ms=10",
        ),
        frontend_flags=("--reuse-port", "--drain-s=3600"),
    )


async def run_long(
    num_streams: int, at_once: int, num_tokens: int, rounds: int, tree: Path, say: Callable[[str], None]
) -> Tally:
    """`num_streams` at least, and `rounds` of restarts at least, whichever takes longer."""
    distinct = make_long_asks(num_tokens)
    asks = [distinct[lane % PROMPTS] for lane in range(at_once)]
    tally = Tally(f"{num_tokens} tokens, all restarted {rounds} times", drafts=False)
    async with open_ring(make_shape(at_once, num_tokens), tree) as ring:
        made = await make_reference(ring, distinct[:at_once])
        expected = [made[lane % PROMPTS] for lane in range(at_once)]
        say("reference is there")
        lanes = Lanes(ring, asks)
        lanes.start()
        started = time.monotonic()
        for turn in range(rounds):
            await _roll(ring)
            say(f"round {turn + 1} of {rounds}: {len(lanes.outcomes)} streams have ended")
        end = time.monotonic()
        while _num_accepted(lanes.outcomes) + at_once < num_streams:
            await asyncio.sleep(0.2)
        await lanes.stop()
        tally.measure(lanes.outcomes, Window(started, end))
        tally.times = rounds
        tally.take(lanes.outcomes, expected, ring.deaths)
        if not tally.is_right:
            keep_logs(ring)
    return tally


def _num_accepted(outcomes: list[Outcome]) -> int:
    return sum(not outcome.was_refused for outcome in outcomes)


async def _roll(ring: Ring) -> None:
    for name in (*ring.shape.schedulers, *ring.shape.workers):
        await ring.restart(name)
        await asyncio.sleep(PAUSE_S)
    for name in ring.shape.frontends:
        await ring.relieve(name)
        await asyncio.sleep(PAUSE_S)
