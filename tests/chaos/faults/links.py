"""Links between services are cut, whole or in one direction."""

from __future__ import annotations

import asyncio

from tests.chaos.faults.fault import Act, Fault
from tests.chaos.faults.schedulers import all_back
from tests.chaos.proxy import CUTS, Cut
from tests.chaos.ring import PAIRS, PEERS, Ring, Shape, chance

PROXIED = Shape(proxied=True)
LONGEST_CUT_S = 6.0
SHORTEST_CUT_S = 0.3
PARTITION_S = 12.0


def _cut(pair: str, cut: Cut) -> Act:
    async def strike(ring: Ring, turn: int) -> None:
        for proxy in ring.proxies[pair]:
            proxy.cut(cut)
        if not cut.resets:
            await asyncio.sleep(chance(turn).uniform(SHORTEST_CUT_S, LONGEST_CUT_S))
        for proxy in ring.proxies[pair]:
            proxy.heal()

    return strike


async def _part(ring: Ring, turn: int) -> None:
    """Frontends and one of the workers do not reach each other; the scheduler hears all of them."""
    proxy = ring.proxies["frontend-worker"][turn % 2]
    proxy.cut(Cut("blackhole", holds_up=True, holds_down=True))
    await asyncio.sleep(PARTITION_S)
    proxy.heal()


LINK_FAULTS = (
    *(
        Fault(f"{pair}: {cut.name}", _cut(pair, cut), heal=all_back, window_s=6, times=20, shape=PROXIED)
        for pair in PAIRS
        if pair != PEERS
        for cut in CUTS
    ),
    Fault("one worker out of the frontend's reach", _part, heal=all_back, shape=PROXIED),
)
