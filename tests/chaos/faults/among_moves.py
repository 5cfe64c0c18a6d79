"""Requests move from worker to worker all the time while something is done to their ring."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc

from tests.chaos.faults.fault import Act
from tests.chaos.handoff.mover import Mover
from tests.chaos.ring import Ring, Shape

MOVING = Shape(num_workers=3, num_frontends=2, worker_flags=("--hand-off",))
EVERY_S = 0.3
BEFORE_S = 1.5
"""How long requests move before anything goes wrong."""
AGAIN_S = 0.2


def among_moves(act: Act) -> Act:
    """Requests move until `act` has ended."""

    async def strike(ring: Ring, turn: int) -> None:
        async with moving(ring):
            await act(ring, turn)

    return strike


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
