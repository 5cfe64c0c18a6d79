"""`python -m tests.simulation.cores --seeds 0:20000 [--jobs 2]`: runs the cores alone, without links and processes,
through random scenarios of models with windows and recurrent states: drafts, preemptions, cancels, host and disk tier,
checkpoints, recovery by snapshot, in turns. Tokens are hashes of what is read back through tables and states. Prints
what happened and every failure, with what to call to see it again."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from typing import Any

from tests.simulation.random_scenario import Scenario

PART = 20
KINDS: Mapping[str, Mapping[str, Any]] = {
    "windows": {"has_groups": True},
    "windows, tier": {"has_groups": True, "has_host_tier": True},
    "windows, disk": {"has_groups": True, "has_disk": True},
    "states": {"num_state_versions": 2, "has_checkpoints": True},
    "states, tier": {"num_state_versions": 2, "has_checkpoints": True, "has_host_tier": True},
    "states, windows": {"num_state_versions": 2, "has_checkpoints": True, "has_groups": True},
    "states, windows, tier": {
        "num_state_versions": 2,
        "has_checkpoints": True,
        "has_groups": True,
        "has_host_tier": True,
    },
}
LANES = (1, 2, 4)
LANE_KINDS: Mapping[str, Mapping[str, Any]] = {
    "lanes": {},
    "lanes, disk": {"has_disk": True},
    **{f"lanes, {kind}": settings for kind, settings in KINDS.items()},
}
"""The same, and others, of workers with 1, 2 and 4 lanes."""
DRAFTS = (0, 3, 4, 0)
INFLIGHT = (1, 2, 4)


def settings_of(
    seed: int, kinds: Mapping[str, Mapping[str, Any]] = KINDS
) -> tuple[str, int, int, dict[str, Any]]:
    """Kind, steps in flight, drafts, and what a scenario is told."""
    kind = list(kinds)[seed % len(kinds)]
    settings, num_lanes = dict(kinds[kind]), 1
    drafts = DRAFTS[seed // len(kinds) % len(DRAFTS)]
    if kinds is LANE_KINDS:
        num_lanes = settings["num_lanes"] = LANES[seed // 2 % len(LANES)]
    if settings.get("num_state_versions"):
        settings["num_state_versions"] = 1 + num_lanes + (drafts > 0)
    return kind, INFLIGHT[seed % len(INFLIGHT)], drafts, settings


def hunt(first: int, end: int, has_lanes: bool = False) -> tuple[Counter[str], Counter[str], list[str]]:
    """Scenarios by kind, what happened in them, and failures."""
    kinds, happened, failures = Counter[str](), Counter[str](), list[str]()
    for seed in range(first, end):
        kind, inflight, drafts, settings = settings_of(seed, LANE_KINDS if has_lanes else KINDS)
        kinds[kind] += 1
        try:
            outcome = asdict(Scenario(seed, inflight, drafts, **settings).run())
        except Exception as error:
            failures.append(f"Scenario({seed}, {inflight}, {drafts}, **{settings}): {error!r}"[:600])
            continue
        happened.update({name: int(value) for name, value in outcome.items() if name.startswith("num_")})
    gc.collect()
    return kinds, happened, failures


def main() -> int:
    """Returns 1 when anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:200", help="FIRST:END")
    parser.add_argument("--lanes", action="store_true", help="of workers with 1, 2 and 4 lanes")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation.cores", *sys.argv[1:]])
    first, end = map(int, arguments.seeds.split(":"))
    starts = range(first, end, PART)
    kinds, happened, num_failed, started = Counter[str](), Counter[str](), 0, time.perf_counter()
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for some, what, failures in pool.map(
            hunt, starts, [min(at + PART, end) for at in starts], [arguments.lanes] * len(starts)
        ):
            kinds.update(some)
            happened.update(what)
            num_failed += len(failures)
            for failure in failures:
                print(failure, flush=True)
    for kind, count in kinds.items():
        print(f"{kind}: {count}")
    print(", ".join(f"{name.removeprefix('num_')} {count}" for name, count in sorted(happened.items())))
    seconds = time.perf_counter() - started
    print(f"{kinds.total()} scenarios in {seconds:.0f} s: {num_failed} fail")
    return int(num_failed > 0)


if __name__ == "__main__":
    sys.exit(main())
