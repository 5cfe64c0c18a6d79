"""`python -m tests.simulation.planted`: which planted bugs the tests of `make test` find.

For each bug that is drawn (`--sample N`, by `--seed`) it runs the tests of `make test` that drive the scheduler's and
the worker's core in one process, with the bug in place from the first to the last test, until one fails. Tests that
plant bugs themselves are left out. It prints a line per bug and the share that was found; `--to FILE` adds a JSON line
per bug, and a second call goes on where the first one ended.

As a plugin of pytest (`-p tests.simulation.planted --plant NAME`) it puts one bug in place."""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from tests.simulation.hunts import Hunt
from tests.simulation.worth import CORE_LISTS, RING_LISTS, hunts_of

FOLDERS = (
    "tests/scheduler_svc",
    "tests/worker_svc/core",
    "tests/worker_svc/transfer",
    "tests/worker_svc/disk",
    "tests/worker_svc/handoff",
    "tests/frontend_svc/requests",
    "tests/signalbox/protocol",
    "tests/simulation",
)
"""What runs the cores in one process, the shortest first."""
LEFT_OUT = "not planted_bug"
"""Expression of pytest that leaves out tests which plant bugs."""
LIMIT_S = 1200
"""Wall time of one bug's tests. A bug that makes them hang is found."""


@dataclass(frozen=True)
class Outcome:
    """What the tests said of one planted bug. `test` is the first that failed; empty: none did."""

    bug: str
    test: str
    wall_s: float


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--plant", metavar="NAME", required=True, help="the planted bug, by its function's name")


def pytest_configure(config: pytest.Config) -> None:
    hunt = bugs()[config.option.plant]
    hunt.plant(pytest.MonkeyPatch())


def bugs() -> dict[str, Hunt]:
    """A hunt of each planted bug, by the bug's name."""
    return {hunt.plant.__name__: hunt for hunt in hunts_of(RING_LISTS + CORE_LISTS)}


def try_tests(bug: str, folders: list[str]) -> Outcome:
    """Runs the tests with a bug in place until one fails."""
    words = ["-m", "not slow", "-k", LEFT_OUT, "-x", "-n", "0", "-p", "no:cacheprovider", "--tb=no"]
    plant = ["-p", "tests.simulation.planted", "--plant", bug]
    command = [sys.executable, "-m", "pytest", *words, *plant, *folders]
    started = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return Outcome(bug, f"no end within {LIMIT_S} s", time.monotonic() - started)
    took_s = time.monotonic() - started
    if done.returncode == 0:
        return Outcome(bug, "", took_s)
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if failed is None:
        raise SystemExit(f"the tests with {bug} did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return Outcome(bug, failed[1], took_s)


def try_each(names: list[str], folders: list[str], path: Path | None) -> Iterator[Outcome]:
    """Tries the bugs in turn; those that the file has are not run again."""
    lines = path.read_text().splitlines() if path and path.exists() else []
    known = {each.bug: each for each in (Outcome(**json.loads(line)) for line in lines)}
    for name in names:
        outcome = known.get(name) or try_tests(name, folders)
        if path and name not in known:
            with path.open("a") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
        yield outcome


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=0, help="so many bugs, drawn; 0: all")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--to", type=Path)
    parser.add_argument("folders", nargs="*", default=list(FOLDERS))
    arguments = parser.parse_args()
    names = sorted(bugs())
    random.Random(f"planted {arguments.seed}").shuffle(names)
    names = names[: arguments.sample or None]
    found = 0
    for outcome in try_each(names, arguments.folders, arguments.to):
        found += bool(outcome.test)
        print(f"{outcome.wall_s:6.0f} s  {outcome.bug}: {outcome.test or 'NOT FOUND'}", flush=True)
    print(f"{found} of {len(names)} planted bugs found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
