"""Faults of one shape of ring, one after the other, under load all the time."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tests.chaos.faults import Fault
from tests.chaos.faults.ranks import SHAPES
from tests.chaos.kinds import Ask
from tests.chaos.lanes import Lanes
from tests.chaos.outcome import Outcome
from tests.chaos.ring import Ring, Shape, count_losses, keep_logs, open_ring
from tests.chaos.tally import Tally, Window

SETTLE_S = 1.0
"""Between two faults, at least."""
ENDS_TIMEOUT_S = 600.0
SIM_STEP_MS = 25
FORGETTING_S = 40.0


class ReferenceError(Exception):
    """Undisturbed rings disagree, so nothing can be judged."""


async def try_faults(
    shape: Shape,
    faults: Sequence[tuple[Fault, int]],
    asks: Sequence[Ask],
    tree: Path,
    say: Callable[[str], None],
    tell: Callable[[Tally], None],
    expected: list[Outcome] | None = None,
) -> list[Outcome]:
    """Tells a tally for each fault with its number of repetitions; returns what an undisturbed ring makes of `asks`.
    `expected` is what another one made of them."""
    async with open_ring(shape, tree) as ring:
        expected = await make_reference(ring, asks, expected)
        say(f"reference of {len(expected)} streams is there")
        for fault, times in faults:
            tally = await _try_one(ring, fault, times, asks, expected, say)
            tell(tally)
            if not tally.is_right:
                keep_logs(ring)
                say(f"logs stay in {ring.folder}")
    return expected


async def make_reference(
    ring: Ring, asks: Sequence[Ask], expected: list[Outcome] | None = None
) -> list[Outcome]:
    """What the undisturbed ring makes: each time the same, and the same as `expected`, if another ring has made it."""
    times = 1 if expected else 2
    runs = [sorted(await Lanes(ring, asks).once(), key=lambda outcome: outcome.lane) for _ in range(times)]
    for run in [*runs, *([expected] if expected else [])]:
        for outcome, other in zip(runs[0], run, strict=True):
            if outcome.error or not (outcome.num_ends or outcome.left):
                raise ReferenceError(f"{outcome.ask.kind}: {outcome.error or 'no end'}")
            if difference := outcome.difference(other):
                raise ReferenceError(f"{outcome.ask.kind}, lane {outcome.lane}: {difference}")
    return runs[0]


async def _try_one(
    ring: Ring,
    fault: Fault,
    times: int,
    asks: Sequence[Ask],
    expected: Sequence[Outcome],
    say: Callable[[str], None],
) -> Tally:
    tally = Tally(fault.name, ring.shape.drafts)
    if fault.begin is not None:
        await fault.begin(ring)
    before = await count_losses(ring)
    lanes = Lanes(ring, fault.asks(asks))
    lanes.start()
    windows = []
    for turn in range(times):
        await asyncio.sleep(SETTLE_S)
        await lanes.flow()
        await fault.prepare(ring, turn)
        started = time.monotonic()
        await fault.strike(ring, turn)
        await asyncio.sleep(fault.window_s)
        windows.append(Window(started, time.monotonic()))
        tally.loads.append(os.getloadavg()[0])
        say(f"{fault.name}: {turn + 1} of {times} at {started:.2f} ({time.strftime('%H:%M:%S')})")
        await fault.heal(ring, turn)
    async with asyncio.timeout(ENDS_TIMEOUT_S):
        await lanes.stop()
    for window in windows:
        tally.measure(lanes.outcomes, window)
    tally.losses = await count_losses(ring) - before
    tally.take(lanes.outcomes, expected, ring.deaths)
    ring.start(*ring.services)
    await ring.ready(*ring.services)
    tally.leftovers = await _leftovers(ring)
    return tally


async def _leftovers(ring: Ring) -> int:
    """Requests that the ring still holds when it has had time to forget those of frontends that died."""
    give_up = time.monotonic() + FORGETTING_S
    while count := await ring.num_requests():
        if time.monotonic() > give_up:
            break
        await asyncio.sleep(0.2)
    return count


def group(
    faults: Sequence[tuple[Fault, int]], runner: str, drafts: bool
) -> dict[Shape, list[tuple[Fault, int]]]:
    """By the shape of their rings."""
    worker = (f"--sim-base-ms={SIM_STEP_MS}", "--sim-weights=demo") if runner == "sim" else ()
    groups: dict[Shape, list[tuple[Fault, int]]] = {}
    for fault, times in faults:
        if runner == "sim" and fault.shape in SHAPES.values():
            continue  # it has nothing to divide
        flags = worker + fault.shape.worker_flags
        groups.setdefault(replace(fault.shape, runner=runner, drafts=drafts, worker_flags=flags), []).append(
            (fault, times)
        )
    return groups
