"""What services rely on changes among moves: wall clocks, settings, and how fast clients read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tests.chaos.clock import make_library
from tests.chaos.faults.among_moves import MOVING, among_moves
from tests.chaos.faults.fault import Act, Fault
from tests.chaos.faults.moves import draw, kill
from tests.chaos.faults.schedulers import all_back
from tests.chaos.kinds import Ask
from tests.chaos.ring import Ring

CLOCKS = replace(MOVING, clocks=True)
HOUR_S = 3600
STEPS = (HOUR_S, -HOUR_S, 0)
"""How far a clock is ahead, one after the other."""
STEP_S = 5.0
"""How long a clock stays so."""
READ_S = 15.0
"""How long clients read badly among moves, at least."""
SILENT_S = 15.0
PACE_S = 1.0

SETTINGS: tuple[dict[str, tuple[str, ...]], ...] = (
    {
        "scheduler": ("--max-num-seqs=8", "--prefill-hand-off=always"),
        "worker": ("--num-blocks=1500", "--num-slots=64"),
        "frontend": ("--max-backlog-tokens=256",),
    },
    {
        "scheduler": ("--max-num-batched-tokens=256", "--resume-elsewhere"),
        "worker": ("--block-size=8", "--num-blocks=6000"),
        "frontend": ("--max-open-requests=64",),
    },
    {
        "scheduler": ("--policy=priority", "--no-pull-prefixes", "--max-inflight-steps=1"),
        "worker": ("--transfer-channels=", "--outbound-log-bytes=1048576"),
        "frontend": (),
    },
    {},
)
"""Those that all services of a kind get in a turn, beside the shape's; at the end they are as they were."""


def _step_clocks(*kinds: str) -> Act:
    """One of each kind; none: all of them."""

    async def strike(ring: Ring, turn: int) -> None:
        names = draw(ring.shape.by_kind, kinds, turn) or list(ring.clocks)
        for name in names:
            maps = Path(f"/proc/{ring.services[name].pid}/maps")
            assert make_library(ring.folder).name in maps.read_text(), f"{name} has the kernel's clock"
        for ahead_s in STEPS:
            for name in names:
                ring.clocks[name].set(ahead_s)
            await asyncio.sleep(STEP_S)

    return among_moves(strike)


async def _roll(ring: Ring, turn: int) -> None:
    """One after the other, as an operator does who changes settings."""
    for kind, names in ring.shape.by_kind.items():
        for name in names:
            await ring.restart(name, *SETTINGS[turn % len(SETTINGS)].get(kind, ()))
            await asyncio.sleep(1)


async def _read_badly(ring: Ring, turn: int) -> None:
    await asyncio.sleep(READ_S)


def _every_other(silent_s: float = 0.0, pace_s: float = 0.0) -> Callable[[Sequence[Ask]], list[Ask]]:
    def change(asks: Sequence[Ask]) -> list[Ask]:
        return [
            replace(ask, silent_s=silent_s, pace_s=pace_s) if lane % 2 else ask
            for lane, ask in enumerate(asks)
        ]

    return change


CHANGE_FAULTS = (
    *(
        Fault(
            f"wall clock of a {kind}: an hour ahead, an hour back",
            _step_clocks(kind),
            window_s=4,
            shape=CLOCKS,
        )
        for kind in ("scheduler", "worker", "frontend")
    ),
    Fault("wall clocks of all: an hour ahead, an hour back", _step_clocks(), window_s=4, shape=CLOCKS),
    Fault(
        "rolling restart to other settings",
        among_moves(_roll),
        heal=all_back,
        shape=MOVING,
        times=len(SETTINGS),
    ),
    *(
        Fault(f"{name}{', worker SIGKILL' if dies else ''}", act, heal=all_back, shape=MOVING, asks=asks)
        for name, asks in (
            ("half of the clients silent for 15 s", _every_other(silent_s=SILENT_S)),
            ("half of the clients read 8 KiB a second", _every_other(pace_s=PACE_S)),
        )
        for dies, act in ((False, among_moves(_read_badly)), (True, kill("worker")))
    ),
)
