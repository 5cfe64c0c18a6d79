"""What is done to streams while they run; each scenario ends when its streams have ended."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tests.chaos.handoff.asks import lane_of, name_of
from tests.chaos.handoff.mover import Mover
from tests.chaos.handoff.result import Counts, Result, by_lane, count
from tests.chaos.kinds import Ask
from tests.chaos.lanes import Lanes
from tests.chaos.outcome import Outcome
from tests.chaos.ring import Ring
from tests.chaos.tally import Tally

Act = Callable[[Mover], Awaitable[None]]
"""Done once streams flow; cancelled when they have ended."""
LEFTOVERS_S = 40.0


@dataclass(frozen=True)
class Reference:
    """What an undisturbed run makes, and what it computes."""

    outcomes: list[Outcome]
    num_prompt_tokens: float


async def make_reference(ring: Ring, asks: Sequence[Ask]) -> Reference:
    """Runs all streams with nothing done to them."""
    before = await count(ring)
    outcomes = by_lane(await Lanes(ring, asks).once())
    for outcome in outcomes:
        assert not outcome.error and (outcome.num_ends or outcome.left), (outcome.ask.kind, outcome.error)
    return Reference(outcomes, (await count(ring)).prompt_tokens - before.prompt_tokens)


async def run(ring: Ring, name: str, asks: Sequence[Ask], reference: Reference, act: Act) -> Result:
    """All streams once, with `act` done to them."""
    before = await count(ring)
    lanes, mover = Lanes(ring, asks), Mover(ring)
    streams = asyncio.create_task(lanes.once())
    await asyncio.wait([streams, asyncio.create_task(lanes.flow())], return_when=asyncio.FIRST_COMPLETED)
    acting = asyncio.ensure_future(act(mover))
    await streams
    if not acting.done():
        acting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await acting
    return await _judge(ring, name, lanes.outcomes, reference, mover, before)


async def _judge(
    ring: Ring, name: str, outcomes: list[Outcome], reference: Reference, mover: Mover, before: Counts
) -> Result:
    tally = Tally(name, ring.shape.drafts, times=1)
    tally.take(outcomes, reference.outcomes, ring.deaths)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LEFTOVERS_S):
            while await ring.num_requests():
                await asyncio.sleep(0.1)
    tally.leftovers = await ring.num_requests()
    after = await count(ring)
    tally.losses = after.losses - before.losses
    result = Result(name, tally, len(mover.moves), mover.refusals, int(after.moved - before.moved))
    result.num_computed_again = int(after.prompt_tokens - before.prompt_tokens - reference.num_prompt_tokens)
    result.handoffs = {
        name: value - before.handoffs.get(name, 0.0)
        for name, value in after.handoffs.items()
        if value != before.handoffs.get(name, 0.0)
    }
    for outcome in outcomes:
        if not outcome.ask.is_slow:
            result.pauses += mover.pauses(name_of(outcome.lane), outcome.times)
    return result


# -- acts --


def move_all(times: int, every_s: float) -> Act:
    """Every request goes to the next worker, so many times."""

    async def act(mover: Mover) -> None:
        await mover.keep_moving(times, every_s)

    return act


def drain(worker: str) -> Act:
    """`signalbox drain`, until nothing is left there; then it takes requests again."""

    async def act(mover: Mover) -> None:
        await mover.ring.drain(worker)
        while await mover.ring.num_held(worker):
            await asyncio.sleep(0.02)
        await mover.ring.drain(worker, resume=True)

    return act


def terminate(worker: str) -> Act:
    """SIGTERM, and a new process in its place."""

    async def act(mover: Mover) -> None:
        await mover.ring.restart(worker)

    return act


def roll(mover_pause_s: float = 1.0) -> Act:
    """All workers are restarted, one after the other."""

    async def act(mover: Mover) -> None:
        for worker in mover.ring.shape.workers:
            await mover.ring.restart(worker)
            await asyncio.sleep(mover_pause_s)

    return act


def kill_in_the_middle(source: str, target: str, victim: str) -> Act:
    """All that `source` has is moved, and one of the two dies at once; it comes back."""

    async def act(mover: Mover) -> None:
        held = [each for each, worker in (await mover.running()).items() if worker == source]
        await asyncio.gather(*(mover.move(each, target) for each in sorted(held, key=lane_of)))
        mover.ring.services[victim].send(signal.SIGKILL)
        await mover.ring.services[victim].ended()
        mover.ring.start(victim)
        await mover.ring.ready(victim)

    return act
