"""The scheduler dies or stands still, with another one beside it or without."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace

from tests.chaos.faults.fault import Act, Fault
from tests.chaos.ring import Ring, Shape

BACK_TIMEOUT_S = 60.0
WITH_STANDBY = Shape(standby=True)
THREE_WORKERS = Shape(num_workers=3)


def _kill_for(seconds: float) -> Act:
    async def strike(ring: Ring, turn: int) -> None:
        await ring.kill("scheduler")
        await asyncio.sleep(seconds)
        ring.start("scheduler")

    return strike


def _freeze_for(seconds: float) -> Act:
    async def strike(ring: Ring, turn: int) -> None:
        leader = ring.services[await ring.leader()]
        leader.send(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        leader.send(signal.SIGCONT)

    return strike


async def _kill_leader(ring: Ring, turn: int) -> None:
    await ring.kill(await ring.leader())


def _kill_with_worker(back_s: float | None) -> Act:
    """One worker of three and the leader at the same moment; the scheduler is back after `back_s`, or a standby takes
    over."""

    async def strike(ring: Ring, turn: int) -> None:
        leader, worker = await ring.leader(), ring.shape.workers[turn % len(ring.shape.workers)]
        await asyncio.gather(ring.kill(leader), ring.kill(worker))
        if back_s is not None:
            await asyncio.sleep(back_s)
            ring.start(leader)

    return strike


async def all_back(ring: Ring, turn: int) -> None:
    """Everything runs and has found everything else."""
    ring.start(*ring.services)
    await ring.ready(*ring.services)
    await asyncio.sleep(1)


SCHEDULER_FAULTS = (
    Fault("scheduler SIGKILL, back after 1 s", _kill_for(1), heal=all_back),
    Fault("scheduler SIGKILL, back after 8 s", _kill_for(8), heal=all_back),
    Fault("scheduler SIGSTOP 10 s", _freeze_for(10), heal=all_back),
    Fault("leader SIGKILL, standby", _kill_leader, heal=all_back, shape=WITH_STANDBY),
    Fault(
        "scheduler and worker SIGKILL, back after 1 s",
        _kill_with_worker(1),
        heal=all_back,
        shape=THREE_WORKERS,
    ),
    Fault(
        "leader and worker SIGKILL, standby",
        _kill_with_worker(None),
        heal=all_back,
        shape=replace(THREE_WORKERS, standby=True),
    ),
    Fault("leader SIGSTOP 10 s, standby", _freeze_for(10), heal=all_back, shape=WITH_STANDBY),
)
