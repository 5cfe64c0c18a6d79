"""Hunts for bugs planted on purpose: each is looked for in one kind of scenario, over seeds that nobody chose, until a
bound. `python -m tests.simulation.worth` measures how long each hunt takes."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.simulation.counts import FULL_COUNTS
from tests.simulation.ring.hunt import Found, try_plot
from tests.simulation.ring.profiles import PROFILES
from tests.simulation.ring.scenario import draw

BOUND = 2000
"""Scenarios within which a planted bug has to show: nine times the 217 that the rarest one of `make test-all` takes on
average, so that one hunt in 10,000 misses it."""

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Hunt:
    """A planted bug, and where it is looked for."""

    plant: Callable[[Patch], None]
    kind: str
    """Of scenarios: the name of a profile, where they are rings."""
    try_seed: Callable[[int], str]
    """Runs the scenario of a seed. Returns what it breaks; "" if it breaks nothing."""
    bound: int = BOUND

    def __str__(self) -> str:
        return f"{self.plant.__name__}-{self.kind}"

    def seeds(self) -> range:
        """Seeds to try: by the bug's name, so that a run can be repeated; in `make soak` by the clock."""
        first = time.time_ns() // 1_000_000 if FULL_COUNTS else zlib.crc32(str(self).encode())
        return range(first, first + self.bound)

    def run(self, patch: Patch) -> None:
        """Plants the bug and fails unless it is found."""
        self.plant(patch)
        seeds = self.seeds()
        for seed in seeds:
            if found := self.try_seed(seed):
                print(f"found by scenario {seed - seeds.start + 1}, seed {seed}: {found}")
                return
        pytest.fail(f"{self} was not found by the scenarios of seeds {seeds.start} to {seeds.stop - 1}")


def in_rings(plant: Callable[[Patch], None], profile: str) -> Hunt:
    """A hunt in rings of a profile."""
    return Hunt(plant, profile, lambda seed: ring_error(seed, profile))


def ring_error(seed: int, profile: str) -> str:
    """What the ring of a seed breaks; "" if nothing."""
    outcome = try_plot(draw(seed, PROFILES[profile]))
    return str(outcome) if isinstance(outcome, Found) else ""


def in_scenarios(
    plant: Callable[[Patch], None],
    kind: str,
    run: Callable[[int], object],
    *errors: type[Exception],
) -> Hunt:
    """A hunt in scenarios of the cores alone. One of `errors` is what the bug breaks; any other error is raised: it is
    the plant's own."""

    def try_seed(seed: int) -> str:
        try:
            run(seed)
        except errors as error:
            return f"{type(error).__name__}: {error}"[:600]
        return ""

    return Hunt(plant, kind, try_seed)
