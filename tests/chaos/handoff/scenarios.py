"""What is done to streams while they run; each scenario ends when its streams have ended."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from signalbox.protocol.enums import WorkerRole
from tests.chaos.handoff.asks import name_of
from tests.chaos.handoff.mover import Mover
from tests.chaos.handoff.result import COMMITTED, Counts, Result, by_lane, count, counting_prompts
from tests.chaos.kinds import Ask
from tests.chaos.lanes import Lanes
from tests.chaos.outcome import Outcome
from tests.chaos.ring import Ring
from tests.chaos.tally import Tally, percentile

Act = Callable[[Mover], Awaitable[None]]
"""Done once streams flow, until it has done all or the mover is over."""
LEFTOVERS_S = 40.0


@dataclass(frozen=True)
class Reference:
    """What an undisturbed run makes, and what it computes or finds of prompts."""

    outcomes: list[Outcome]
    num_prompt_tokens: int

    @property
    def gap_s(self) -> float:
        """Median between two pieces of a stream."""
        pairs = (pair for outcome in self.outcomes for pair in itertools.pairwise(outcome.times))
        return percentile([b - a for a, b in pairs], 50)


async def make_reference(ring: Ring, asks: Sequence[Ask]) -> Reference:
    """Runs all streams with nothing done to them."""
    async with counting_prompts(ring) as prompts:
        outcomes = by_lane(await Lanes(ring, asks).once())
    for outcome in outcomes:
        assert not outcome.error and (outcome.num_ends or outcome.left), (outcome.ask.kind, outcome.error)
    return Reference(outcomes, prompts.num_tokens)


async def run(ring: Ring, name: str, asks: Sequence[Ask], reference: Reference, act: Act) -> Result:
    """All streams once, with `act` done to them."""
    before = await count(ring)
    lanes, mover = Lanes(ring, asks), Mover(ring)
    async with counting_prompts(ring) as prompts:
        streams = asyncio.create_task(lanes.once())
        await lanes.flow()
        acting = asyncio.ensure_future(act(mover))
        await streams
    mover.is_over = True
    await acting
    result = await _judge(ring, name, lanes.outcomes, reference, mover, before)
    result.gap_s = reference.gap_s
    again = prompts.num_tokens - reference.num_prompt_tokens
    # A request that its client leaves before its first step at the target leaves that one token uncomputed.
    result.num_computed_again = max(0, again - int(result.handoffs.get(COMMITTED, 0)))
    return result


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
    changes = {name: value - before.handoffs.get(name, 0.0) for name, value in after.handoffs.items()}
    result.handoffs = {name: value for name, value in changes.items() if value}
    for outcome in outcomes:
        if not outcome.ask.is_slow:
            result.pauses += mover.pauses(name_of(outcome.lane), outcome.times)
            result.gaps += [later - sooner for sooner, later in itertools.pairwise(outcome.times)]
    return result


# -- acts --


def move_all(times: int, every_s: float) -> Act:
    """Every request goes to the next worker, so many times."""

    async def act(mover: Mover) -> None:
        await mover.keep_moving(times, every_s)

    return act


def drain() -> Act:
    """`signalbox drain` of the worker that has most, until nothing is left there; then it takes requests again."""

    async def act(mover: Mover) -> None:
        worker = (await mover.by_load())[-1]
        await mover.ring.drain(worker)
        while await mover.ring.num_held(worker):
            await asyncio.sleep(0.02)
        await mover.ring.drain(worker, resume=True)

    return act


def terminate() -> Act:
    """SIGTERM for the worker that has most, and a new process in its place."""

    async def act(mover: Mover) -> None:
        await mover.ring.restart((await mover.by_load())[-1])

    return act


def roll(pause_s: float = 1.0) -> Act:
    """All workers are restarted, one after the other."""

    async def act(mover: Mover) -> None:
        for worker in mover.ring.shape.workers:
            await mover.ring.restart(worker)
            await asyncio.sleep(pause_s)

    return act


def flip_roles(every_s: float = 0.5) -> Act:
    """One worker computes prompts and the other decodes, and what each does changes again and again (PD1)."""

    async def act(mover: Mover) -> None:
        turns = itertools.cycle(
            ((WorkerRole.PREFILL, WorkerRole.DECODE), (WorkerRole.DECODE, WorkerRole.PREFILL))
        )
        while not mover.is_over:
            for worker, role in zip(mover.ring.shape.workers, next(turns), strict=False):
                await mover.ring.set_role(worker, role)
            await asyncio.sleep(every_s)
        for worker in mover.ring.shape.workers:
            await mover.ring.set_role(worker, WorkerRole.BOTH)

    return act


def kill_in_the_middle(*, source_dies: bool) -> Act:
    """All that one worker has is moved to another, and one of the two dies at once; it comes back."""

    async def act(mover: Mover) -> None:
        *_, target, source = await mover.by_load()
        held = [each for each, worker in (await mover.running()).items() if worker == source]
        await asyncio.gather(*(mover.move(each, target) for each in sorted(held)))
        victim = source if source_dies else target
        mover.ring.services[victim].send(signal.SIGKILL)
        await mover.ring.services[victim].ended()
        mover.ring.start(victim)
        await mover.ring.ready(victim)

    return act
