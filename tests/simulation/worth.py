"""`python -m tests.simulation.worth`: what the simulation's seconds find (docs/reliability.md, "Simulation").

Without more it hunts each planted bug `--hunts` times, from seeds of its own, and prints the mean number of scenarios
and of processor seconds until it shows. With `--rings N` it plants a bug that is drawn in each of N rings whose
profile and length are drawn, and prints by profile and by length what is found per processor second. `--to FILE` adds
a JSON line per scenario; `--of FILE` prints the tables of such lines and runs nothing."""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.simulation import (
    test_ahead,
    test_checkpoints,
    test_disk,
    test_drafts_and_states,
    test_handoff,
    test_host_tier,
    test_lanes,
    test_masks,
    test_mutations,
    test_pulls,
    test_states,
    test_windows,
)
from tests.simulation.hunts import BOUND, Hunt
from tests.simulation.ring.hunt import Found, try_plot
from tests.simulation.ring.profiles import PROFILES
from tests.simulation.ring.scenario import draw

RING_LISTS = (
    *(test_mutations.HUNTS, test_masks.HUNTS, test_handoff.HUNTS, test_pulls.HUNTS, test_windows.RING_HUNTS),
)
CORE_LISTS = (
    *(test_mutations.CORE_HUNTS, test_lanes.HUNTS, test_ahead.HUNTS, test_checkpoints.HUNTS, test_disk.HUNTS),
    *(test_drafts_and_states.HUNTS, test_host_tier.HUNTS, test_states.HUNTS, test_windows.HUNTS),
)
FAMILIES = {
    "hand-offs": ("handoff", "roles", "rolling", "drains", "lanes handoff"),
    "pulls": ("pulls",),
    "lanes": ("lanes",),
    "states": ("states",),
    "windows": ("windows",),
    "forms": ("forms",),
    "links": (
        *("alone", "apart", "gone", "late", "reach", "refused", "stopped", "store", "twins", "walled"),
    ),
}
"""By the beginnings of profiles' names."""
LENGTHS = (0.5, 1.0, 2.0)
"""Factors of a profile's number of requests."""


@dataclass(frozen=True)
class Tried:
    """One scenario with a planted bug."""

    bug: str
    kind: str
    length: float
    seed: int
    cpu_s: float
    is_found: bool


def hunts_of(lists: Sequence[Sequence[Any]]) -> list[Hunt]:
    """The hunts, those of `make soak` too."""
    values = [value for some in lists for value in some]
    return [value if isinstance(value, Hunt) else value.values[0] for value in values]


def hunt_each(hunts: Sequence[Hunt], times: int, seed: int) -> Iterator[Tried]:
    """Hunts each bug so many times in its own kind of scenario, from seeds that follow from `seed`."""
    for hunt in hunts:
        for number in range(times):
            first = random.Random(f"{seed}/{number}/{hunt}").randrange(1 << 40)
            for at in range(first, first + BOUND):
                tried = planted(hunt, hunt.kind, 1.0, at, partial(hunt.try_seed, at))
                yield tried
                if tried.is_found:
                    break


def draw_rings(hunts: Sequence[Hunt], profiles: Sequence[str], count: int, seed: int) -> Iterator[Tried]:
    """Plants bugs in so many rings: each in turn has another profile, and a bug and a length that are drawn."""
    dice = random.Random(f"rings {seed}")
    for number in range(count):
        hunt, length, at = dice.choice(hunts), dice.choice(LENGTHS), dice.randrange(1 << 40)
        name = profiles[number % len(profiles)]
        yield planted(hunt, name, length, at, partial(ring_fails, name, length, at))


def ring_fails(name: str, length: float, seed: int) -> bool:
    """Whether the ring of a seed breaks a rule, with so many times the profile's requests."""
    profile = PROFILES[name]
    few, most = (max(1, round(length * number)) for number in profile.requests)
    return isinstance(try_plot(draw(seed, replace(profile, requests=(few, most)))), Found)


def planted(hunt: Hunt, kind: str, length: float, seed: int, fails: Callable[[], object]) -> Tried:
    """Runs a scenario while the bug is there."""
    with pytest.MonkeyPatch.context() as patch:
        hunt.plant(patch)
        started = time.process_time()
        found = bool(fails())
        return Tried(hunt.plant.__name__, kind, length, seed, time.process_time() - started, found)


# -- tables --


def by_bug(tried: Iterable[Tried]) -> list[str]:
    """Of each bug and kind of scenario: hunts, mean number of scenarios and mean seconds until it is found."""
    lines = []
    for (bug, kind), some in grouped(tried, lambda each: (each.bug, each.kind)).items():
        found = sum(each.is_found for each in some)
        seconds = sum(each.cpu_s for each in some)
        share = f"{len(some) / found:6.1f} {seconds / found:7.2f}" if found else f"{'-':>6} {'-':>7}"
        lines.append(f"{found:5} {len(some):6} {share}  {bug}, {kind}")
    return ["found  tried   mean   CPU s  bug, kind", *lines]


def by_profile(tried: Sequence[Tried]) -> list[str]:
    """What is found per processor second, the best first: by profile, by family of profiles, and by length."""
    lines = []
    for name, key in (
        ("profile", lambda each: each.kind),
        ("family", lambda each: family_of(each.kind)),
        ("length", lambda each: f"x {each.length}"),
    ):
        rows = []
        for value, some in grouped(tried, key).items():
            seconds, found = sum(each.cpu_s for each in some), [each.bug for each in some if each.is_found]
            rows.append(
                (len(found) / seconds, len(some), seconds / len(some), len(found), len(set(found)), value)
            )
        lines.append(f"found/CPU s  rings  CPU s/ring  found  bugs  {name}")
        lines += [
            f"{rate:11.2f} {count:6} {mean:11.3f} {found:6} {bugs:5}  {value}"
            for rate, count, mean, found, bugs, value in sorted(rows, reverse=True)
        ]
    return lines


def family_of(profile: str) -> str:
    """What the rings of a profile are about."""
    return next((name for name, words in FAMILIES.items() if profile.startswith(words)), "any, odd requests")


def grouped(tried: Iterable[Tried], key: Callable[[Tried], Any]) -> dict[Any, list[Tried]]:
    """The scenarios by a key, in order of their first."""
    groups: dict[Any, list[Tried]] = {}
    for each in tried:
        groups.setdefault(key(each), []).append(each)
    return groups


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hunts", type=int, default=5)
    parser.add_argument("--rings", type=int, default=0)
    parser.add_argument("--bugs", default="", help="a regular expression that names are searched for")
    parser.add_argument("--profiles", default="", help="the same of profiles")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--to", type=Path)
    parser.add_argument("--of", type=Path)
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation.worth", *sys.argv[1:]])
    lists = RING_LISTS if arguments.rings else RING_LISTS + CORE_LISTS
    hunts = [hunt for hunt in hunts_of(lists) if re.search(arguments.bugs, str(hunt))]
    profiles = [name for name in PROFILES if re.search(arguments.profiles, name)]
    tried: list[Tried] = []
    if arguments.of:
        tried = [Tried(**json.loads(line)) for line in arguments.of.read_text().splitlines()]
    elif arguments.rings:
        tried = list(kept(draw_rings(hunts, profiles, arguments.rings, arguments.seed), arguments.to))
    else:
        tried = list(kept(hunt_each(hunts, arguments.hunts, arguments.seed), arguments.to))
    print("\n".join(by_profile(tried) if arguments.rings else by_bug(tried)))
    return 0


def kept(tried: Iterable[Tried], path: Path | None) -> Iterator[Tried]:
    """The same, each with a line in the file, where there is one."""
    for each in tried:
        if path:
            with path.open("a") as file:
                file.write(json.dumps(asdict(each)) + "\n")
        yield each


if __name__ == "__main__":
    sys.exit(main())
