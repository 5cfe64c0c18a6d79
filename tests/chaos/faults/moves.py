"""Links are cut and services die while requests move from worker to worker all the time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence

import grpc

from tests.chaos.faults.fault import Act, Fault
from tests.chaos.faults.schedulers import all_back
from tests.chaos.handoff.mover import Mover
from tests.chaos.proxy import CUTS, Cut
from tests.chaos.ring import PAIRS, Ring, Shape, chance

MOVING = Shape(proxied=True, num_workers=3, worker_flags=("--hand-off", "--transfer-channels="))
"""Blocks travel in messages, which the proxies carry."""
OF_ONE_WORKER = ("frontend-worker", "worker-scheduler")
"""Pairs of which one worker's link is cut: streams go on at the others."""
EVERY_S = 0.3
BEFORE_S = 1.5
"""How long requests move before anything goes wrong."""
CUT_S = 10.0
BACK_S = 1.0
AGAIN_S = 0.2


@contextlib.asynccontextmanager
async def moving(ring: Ring) -> AsyncIterator[Mover]:
    """All requests go to the next worker, again and again, for the time of the block."""
    mover = Mover(ring)
    task = asyncio.create_task(_keep_moving(mover))
    await asyncio.sleep(BEFORE_S)
    try:
        yield mover
    finally:
        mover.is_over = True
        await task
        assert mover.moves, "nothing has moved"


async def _keep_moving(mover: Mover) -> None:
    while not mover.is_over:
        with contextlib.suppress(grpc.aio.AioRpcError):  # the scheduler is away
            await mover.keep_moving(1 << 20, EVERY_S)
        await asyncio.sleep(AGAIN_S)


def _cut(pair: str, cut: Cut) -> Act:
    async def strike(ring: Ring, turn: int) -> None:
        paths = ring.proxies[pair]
        if pair in OF_ONE_WORKER:
            paths = [paths[turn % len(paths)]]
        async with moving(ring):
            for connections in paths:
                connections.cut(cut)
            await asyncio.sleep(CUT_S)
            for connections in paths:
                connections.heal()

    return strike


def _kill(*kinds: str, are_back: bool = True) -> Act:
    """One service of each kind at once; `are_back`: workers come back, as all others do."""

    async def strike(ring: Ring, turn: int) -> None:
        names = {
            "scheduler": ring.shape.schedulers,
            "worker": ring.shape.workers,
            "frontend": ring.shape.frontends,
        }
        victims = _draw(names, kinds, turn)
        async with moving(ring):
            await asyncio.gather(*map(ring.kill, victims))
            await asyncio.sleep(BACK_S)
            ring.start(*(name for name in victims if are_back or name not in ring.shape.workers))

    return strike


def _draw(names: Mapping[str, Sequence[str]], kinds: Sequence[str], turn: int) -> list[str]:
    numbers, drawn = chance(turn), list[str]()
    for kind in kinds:
        drawn.append(numbers.choice([name for name in names[kind] if name not in drawn]))
    return drawn


async def _kill_and_cut(ring: Ring, turn: int) -> None:
    """A worker dies while no worker reaches another."""
    async with moving(ring):
        for connections in ring.proxies["worker-worker"]:
            connections.cut(CUTS[1])
        await ring.kill(chance(turn).choice(ring.shape.workers))
        await asyncio.sleep(CUT_S)
        for connections in ring.proxies["worker-worker"]:
            connections.heal()


_TWO = Shape(num_workers=3, num_frontends=2, worker_flags=("--hand-off",))
MOVE_FAULTS = (
    *(
        Fault(f"{pair} among moves: {cut.name}", _cut(pair, cut), heal=all_back, window_s=4, shape=MOVING)
        for pair in reversed(PAIRS)
        for cut in CUTS
    ),
    Fault(
        "scheduler and worker SIGKILL, among moves", _kill("scheduler", "worker"), heal=all_back, shape=_TWO
    ),
    Fault(
        "scheduler and worker SIGKILL, worker stays away",
        _kill("scheduler", "worker", are_back=False),
        heal=all_back,
        shape=_TWO,
    ),
    Fault("two workers SIGKILL, among moves", _kill("worker", "worker"), heal=all_back, shape=_TWO),
    Fault("frontend and worker SIGKILL, among moves", _kill("frontend", "worker"), heal=all_back, shape=_TWO),
    Fault(
        "scheduler and frontend SIGKILL, among moves",
        _kill("scheduler", "frontend"),
        heal=all_back,
        shape=_TWO,
    ),
    Fault("worker SIGKILL, worker-worker: blackhole", _kill_and_cut, heal=all_back, shape=MOVING),
)
