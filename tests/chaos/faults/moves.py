"""Links are cut and services die while requests move from worker to worker all the time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.chaos.faults.among_moves import MOVING, among_moves
from tests.chaos.faults.fault import Act, Fault
from tests.chaos.faults.schedulers import all_back
from tests.chaos.proxy import CUTS, Cut
from tests.chaos.ring import PAIRS, PEERS, Ring, chance

CUT = replace(MOVING, num_frontends=1, proxied=True, worker_flags=("--hand-off", "--transfer-channels="))
"""Blocks travel in messages, which the proxies carry."""
ENCRYPTED = replace(CUT, tls=True)
BY_TCP = replace(MOVING, tls=True, worker_flags=("--hand-off", "--transfer-channels=tcp"))
"""Blocks travel in connections of their own, by TLS."""
OF_ONE_WORKER = ("frontend-worker", "worker-scheduler")
"""Pairs of which one worker's link is cut: streams go on at the others."""
CUT_S = 10.0
RESETS_S = 1.0
"""Between two resets of connections."""
BACK_S = 1.0


def _cut(pair: str, cut: Cut) -> Act:
    async def strike(ring: Ring, turn: int) -> None:
        paths = ring.proxies[pair]
        if pair in OF_ONE_WORKER:
            paths = [paths[turn % len(paths)]]
        end = time.monotonic() + CUT_S
        while time.monotonic() < end:
            for connections in paths:
                connections.cut(cut)
            await asyncio.sleep(RESETS_S if cut.resets else CUT_S)
        for connections in paths:
            connections.heal()

    return among_moves(strike)


def kill(*kinds: str, are_back: bool = True) -> Act:
    """One service of each kind at once, among moves; `are_back`: workers come back, as all others do."""

    async def strike(ring: Ring, turn: int) -> None:
        victims = draw(ring.shape.by_kind, kinds, turn)
        await asyncio.gather(*map(ring.kill, victims))
        await asyncio.sleep(BACK_S)
        ring.start(*(name for name in victims if are_back or name not in ring.shape.workers))

    return among_moves(strike)


def draw(names: Mapping[str, Sequence[str]], kinds: Sequence[str], turn: int) -> list[str]:
    """A service of each kind, none twice."""
    numbers, drawn = chance(turn), list[str]()
    for kind in kinds:
        drawn.append(numbers.choice([name for name in names[kind] if name not in drawn]))
    return drawn


async def _kill_and_cut(ring: Ring, turn: int) -> None:
    """A worker dies while no worker reaches another."""
    for connections in ring.proxies[PEERS]:
        connections.cut(CUTS[1])
    await ring.kill(chance(turn).choice(ring.shape.workers))
    await asyncio.sleep(CUT_S)
    for connections in ring.proxies[PEERS]:
        connections.heal()


_AT_ONCE = {
    "worker SIGKILL, among moves": kill("worker"),
    "scheduler SIGKILL, among moves": kill("scheduler"),
    "scheduler and worker SIGKILL, among moves": kill("scheduler", "worker"),
    "scheduler and worker SIGKILL, worker stays away": kill("scheduler", "worker", are_back=False),
    "two workers SIGKILL, among moves": kill("worker", "worker"),
    "frontend and worker SIGKILL, among moves": kill("frontend", "worker"),
    "scheduler and frontend SIGKILL, among moves": kill("scheduler", "frontend"),
}
_WITHIN = among_moves(_kill_and_cut)

MOVE_FAULTS = (
    *(
        Fault(f"{pair} among moves: {cut.name}", _cut(pair, cut), heal=all_back, window_s=4, shape=CUT)
        for pair in reversed(PAIRS)
        for cut in CUTS
    ),
    *(Fault(name, act, heal=all_back, shape=MOVING) for name, act in _AT_ONCE.items()),
    Fault("worker SIGKILL, worker-worker: blackhole", _WITHIN, heal=all_back, shape=CUT),
    # The same by TLS: of links those that blocks take.
    *(
        Fault(f"TLS, {PEERS} among moves: {cut.name}", _cut(PEERS, cut), heal=all_back, shape=ENCRYPTED)
        for cut in CUTS
    ),
    Fault("TLS, worker SIGKILL, worker-worker: blackhole", _WITHIN, heal=all_back, shape=ENCRYPTED),
    *(Fault(f"TLS, {name}", act, heal=all_back, shape=BY_TCP) for name, act in _AT_ONCE.items()),
)
