"""A busy worker dies, leaves or stands still while another one idles."""

from __future__ import annotations

import asyncio
import signal
import time

from tests.chaos.faults.fault import Fault
from tests.chaos.ring import Ring

MOVE_S = 11.0
"""What a planned end of a worker may cost its streams, in a ring that waits for it to come back."""
STOPPED_S = 60.0


async def stop_one(ring: Ring) -> None:
    """One worker is alone."""
    await ring.services[ring.shape.workers[1]].stop()


async def have_one_idle(ring: Ring, turn: int) -> None:
    """One worker has all streams, another one has just come."""
    down = [name for name in ring.shape.workers if not ring.services[name].runs]
    if not down:
        down = [ring.shape.workers[(turn + 1) % 2]]
        await ring.services[down[0]].stop()
        await asyncio.sleep(MOVE_S)
    ring.start(down[0])
    await ring.ready(down[0])
    _IDLE[ring.folder.name] = down[0]


_IDLE: dict[str, str] = {}
"""Name of the worker that came last, by ring."""


def busy(ring: Ring) -> str:
    """Name of the worker that has all streams."""
    return next(name for name in ring.shape.workers if name != _IDLE[ring.folder.name])


async def _kill(ring: Ring, turn: int) -> None:
    await ring.kill(busy(ring))


async def _terminate(ring: Ring, turn: int) -> None:
    ring.services[busy(ring)].send(signal.SIGTERM)


async def _ended(ring: Ring, turn: int) -> None:
    await ring.services[busy(ring)].ended()


async def _freeze(ring: Ring, turn: int) -> None:
    _FROZEN_AT[ring.folder.name] = time.monotonic()
    ring.services[busy(ring)].send(signal.SIGSTOP)


_FROZEN_AT: dict[str, float] = {}


async def _thaw(ring: Ring, turn: int) -> None:
    """It comes back with attempts that others have gone on with."""
    await asyncio.sleep(max(0.0, _FROZEN_AT[ring.folder.name] + STOPPED_S - time.monotonic()))
    ring.services[busy(ring)].send(signal.SIGCONT)
    await asyncio.sleep(5)
    await ring.ready(busy(ring))
    await ring.services[busy(ring)].stop()
    await asyncio.sleep(MOVE_S)


async def _freeze_shortly(ring: Ring, turn: int) -> None:
    worker = ring.services[busy(ring)]
    worker.send(signal.SIGSTOP)
    await asyncio.sleep(3)
    worker.send(signal.SIGCONT)


WORKER_FAULTS = (
    Fault("worker SIGKILL", _kill, have_one_idle, begin=stop_one, window_s=16),
    Fault("worker SIGTERM", _terminate, have_one_idle, _ended, begin=stop_one, window_s=16),
    Fault("worker SIGSTOP 60 s", _freeze, have_one_idle, _thaw, begin=stop_one, window_s=50),
    Fault("worker SIGSTOP 3 s", _freeze_shortly, have_one_idle, begin=stop_one),
)
