"""Nothing at all, for comparison, and everything at once."""

from __future__ import annotations

import asyncio
import random
import signal

from tests.chaos.faults.fault import Fault, nothing
from tests.chaos.faults.schedulers import all_back
from tests.chaos.proxy import CUTS
from tests.chaos.ring import PAIRS, Ring, Shape, chance

SPREAD_S = 3.0
"""Within which the faults begin."""


async def _everything(ring: Ring, turn: int) -> None:
    numbers = chance(turn)
    first, second = numbers.sample(ring.shape.workers, 2)
    await asyncio.gather(
        _kill(ring, "scheduler", numbers),
        _kill(ring, first, numbers),
        _freeze(ring, second, numbers),
        *(_cut(ring, pair, numbers) for pair in PAIRS),
    )


async def _kill(ring: Ring, name: str, numbers: random.Random) -> None:
    begin, away = numbers.uniform(0, SPREAD_S), numbers.uniform(0, 3)
    await asyncio.sleep(begin)
    await ring.kill(name)
    await asyncio.sleep(away)
    ring.start(name)


async def _freeze(ring: Ring, name: str, numbers: random.Random) -> None:
    begin, away = numbers.uniform(0, SPREAD_S), numbers.uniform(0.5, 5)
    await asyncio.sleep(begin)
    ring.services[name].send(signal.SIGSTOP)
    await asyncio.sleep(away)
    ring.services[name].send(signal.SIGCONT)


async def _cut(ring: Ring, pair: str, numbers: random.Random) -> None:
    begin, away, cut = numbers.uniform(0, SPREAD_S), numbers.uniform(0.2, 5), numbers.choice(CUTS)
    await asyncio.sleep(begin)
    for proxy in ring.proxies[pair]:
        proxy.cut(cut)
    await asyncio.sleep(away)
    for proxy in ring.proxies[pair]:
        proxy.heal()


MIXED_FAULTS = (
    Fault("nothing", nothing),
    Fault("everything at once", _everything, heal=all_back, window_s=20, times=10, shape=Shape(proxied=True)),
)
