"""The paths of a ring: pairs of hosts that talk to each other."""

from __future__ import annotations

import random
from itertools import combinations, product

from tests.simulation.ring.setup import RingSetup

Path = tuple[str, str]


def paths_of(setup: RingSetup) -> dict[str, list[Path]]:
    """The paths of a ring by their ends' kinds: w a worker, s a scheduler, f a frontend, r the relay, by which workers
    reach the scheduler where there is one."""
    workers = [f"w{number}" for number in range(setup.num_workers)]
    schedulers = [f"s{number}" for number in range(setup.num_schedulers)]
    frontends = [f"f{number}" for number in range(setup.num_frontends)]
    paths = {
        "ww": list(combinations(workers, 2)),
        "ss": list(combinations(schedulers, 2)),
        "wf": list(product(workers, frontends)),
        "sf": list(product(schedulers, frontends)),
    }
    if setup.with_relay:
        paths |= {"wr": list(product(workers, ["r0"])), "sr": list(product(schedulers, ["r0"]))}
    else:
        paths["ws"] = list(product(workers, schedulers))
    return {kind: found for kind, found in paths.items() if found}


def draw_path(rng: random.Random, setup: RingSetup) -> Path:
    """A path, in the one or the other direction: every kind of path is as likely, however many there are of it."""
    paths = paths_of(setup)
    first, second = rng.choice(paths[rng.choice(sorted(paths))])
    return (first, second) if rng.random() < 0.5 else (second, first)
