"""Frontends die; all services are restarted one by one."""

from __future__ import annotations

import asyncio

from tests.chaos.faults.fault import Fault
from tests.chaos.faults.schedulers import all_back
from tests.chaos.ring import Ring, Shape

TWO = Shape(num_frontends=2)


async def _kill_one_of_two(ring: Ring, turn: int) -> None:
    await ring.kill(ring.shape.frontends[turn % 2])


async def _kill_the_only_one(ring: Ring, turn: int) -> None:
    await ring.kill(ring.shape.frontends[0])
    ring.start(ring.shape.frontends[0])


async def _roll(ring: Ring, turn: int) -> None:
    """As an upgrade does it: SIGTERM, a new process, the next one when that is ready."""
    for name in (*ring.shape.schedulers, *ring.shape.workers, *ring.shape.frontends):
        await ring.restart(name)
        await asyncio.sleep(1)


FRONTEND_FAULTS = (
    Fault("one of two frontends SIGKILL", _kill_one_of_two, heal=all_back, shape=TWO),
    Fault("frontend SIGKILL, back at once", _kill_the_only_one, heal=all_back),
    Fault("rolling restart of all", _roll, heal=all_back, shape=TWO, times=5),
)
