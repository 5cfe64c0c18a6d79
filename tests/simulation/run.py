"""`python -m tests.simulation.run --seeds 0:1000 [--jobs 2] [--profile any]`: hunts through seeds, prints the rate,
what was run of each profile, and every failure. `--profile` is a regular expression of whole names: of the profiles
that it matches, or of all, each in turn has 20 of the seeds. `--shrink` makes each failure as small as it gets and
prints its trace. Run it with PYTHONHASHSEED=0, so that a seed replays exactly."""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.ring.hunt import Found, explain, shrink, try_plot
from tests.simulation.ring.profiles import PROFILES
from tests.simulation.ring.scenario import draw

PART = 20


def hunt(first: int, end: int, profile: str, shrinks: bool) -> tuple[int, int, list[str], Counter[str]]:
    """Scenarios, events and failures of a range of seeds, and what became of hand-offs."""
    events, failures, handoffs = 0, list[str](), Counter[str]()
    for seed in range(first, end):
        outcome = try_plot(draw(seed, PROFILES[profile]))
        if isinstance(outcome, Found):
            failures.append(f"{outcome}\n{explain(shrink(outcome))}" if shrinks else str(outcome))
        else:
            events += outcome.num_events
            handoffs.update(outcome.counts)
    gc.collect()
    return end - first, events, failures, handoffs


def profiles_like(pattern: str) -> list[str]:
    """The profiles whose names match as a whole. argparse.ArgumentTypeError where none does."""
    try:
        names = [name for name in PROFILES if re.fullmatch(pattern, name)]
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{pattern!r} is no regular expression: {error}") from None
    if not names:
        raise argparse.ArgumentTypeError(f"no profile is like {pattern!r}: there are {', '.join(PROFILES)}")
    return names


def main() -> int:
    """Returns 1 when anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:200", help="FIRST:END")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--profile", type=profiles_like, default=list(PROFILES), metavar="PATTERN")
    parser.add_argument("--progress", action="store_true", help="print a line per part of 20 seeds")
    parser.add_argument("--shrink", action="store_true")
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation.run", *sys.argv[1:]])
    first, end = map(int, arguments.seeds.split(":"))
    parts = [
        (at, min(at + PART, end), arguments.profile[at // PART % len(arguments.profile)], arguments.shrink)
        for at in range(first, end, PART)
    ]
    started, events, found = time.perf_counter(), 0, 0
    scenarios, handoffs = Counter[str](), Counter[str]()
    with ProcessPoolExecutor(arguments.jobs) as pool:
        results = pool.map(hunt, *zip(*parts, strict=True))
        for part, (count, some, failures, became) in zip(parts, results, strict=True):
            handoffs.update(became)
            scenarios[part[2]] += count
            events, found = events + some, found + len(failures)
            for failure in failures:
                print(failure, flush=True)
            if arguments.progress:
                print(f"{part[2]} {part[0]}:{part[1]}, {events} events so far, {found} fail", flush=True)
    seconds = time.perf_counter() - started
    rate = f"{scenarios.total() / seconds:.1f} per second"
    for profile, count in scenarios.items():
        print(f"{profile}: {count}")
    if handoffs:
        print("hand-offs: " + ", ".join(f"{count} {what}" for what, count in sorted(handoffs.items())))
    print(f"{scenarios.total()} scenarios, {events} events in {seconds:.1f} s ({rate}): {found} fail")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
