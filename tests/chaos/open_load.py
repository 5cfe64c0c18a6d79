"""Requests that arrive at a rate, whatever becomes of those before them."""

from __future__ import annotations

import asyncio
import random
import time

from tests.chaos.client import run_stream
from tests.chaos.kinds import Ask
from tests.chaos.outcome import Outcome
from tests.chaos.ring import Ring

VOCABULARY = 4000


def make_ask(numbers: random.Random, num_prompt_tokens: int, num_tokens: int) -> Ask:
    """A prompt like no other."""
    prompt = [numbers.randrange(VOCABULARY) for _ in range(num_prompt_tokens)]
    body = {"model": "demo", "prompt": prompt, "max_tokens": num_tokens, "ignore_eos": True, "stream": True}
    return Ask("plain", "http", body | {"stream_options": {"include_usage": True}, "temperature": 0})


async def offer(
    ring: Ring, rate: float, seconds: float, num_prompt_tokens: int, num_tokens: int
) -> list[Outcome]:
    """`rate` requests per second for so long; returns when the last one has ended."""
    numbers = random.Random(int(rate * 1000))
    started = time.monotonic()
    outcomes: list[Outcome] = []
    running: set[asyncio.Task[None]] = set()

    async def one(number: int) -> None:
        frontend = ring.frontends[number % len(ring.frontends)]
        ask = make_ask(numbers, num_prompt_tokens, num_tokens)
        outcome = Outcome(ask, number, frontend.name, time.monotonic())
        await run_stream(ask, frontend, outcome)
        outcomes.append(outcome)

    number = 0
    while (now := time.monotonic() - started) < seconds:
        while number < now * rate:
            task = asyncio.create_task(one(number))
            running.add(task)
            task.add_done_callback(running.discard)
            number += 1
        await asyncio.sleep(0.01)
    await asyncio.gather(*running)
    return outcomes


def goodput(outcomes: list[Outcome], start: float, end: float) -> float:
    """Output tokens per second of the streams that ended well between `start` and `end`."""
    ended = (o for o in outcomes if start <= o.ended < end and not o.error and o.usage)
    return sum(o.usage[1] for o in ended if o.usage) / (end - start)
