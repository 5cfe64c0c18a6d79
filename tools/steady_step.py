"""The scheduler's steady step beside fixed commits: the same bench of both trees, in turns.

    python -m tools.steady_step                          # against all of them
    python -m tools.steady_step --against c082cf6 --pairs 11

Each pair is one process of either tree, and the one that goes first changes from pair to pair. One JSON object on
stdout for each commit and number of running requests: medians of the ratios of the pairs, ours by theirs, p50.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BENCH = "signalbox.benchmarks.scheduler.step"
PARTS = ("total", "schedule", "encode", "parse", "update")
Line = dict[str, float]


@dataclass(frozen=True)
class FixedCommit:
    """A commit that later ones are measured against."""

    commit: str
    why: str
    bench: str = BENCH
    """The module of its bench of steps."""


FIXED = (
    FixedCommit(
        "c082cf6",
        "the cheapest step so far: before fences, hand-offs, groups of blocks and tiers",
        "scheduler_svc.bench",
    ),
    FixedCommit(
        "cd82ab39", "the end of the issue that removed conditional roles and NIXL, and counts what grows"
    ),
)
"""A step may cost 1.03 of the better one of these, with features off."""


def main() -> None:
    """Prints one JSON object per commit and number of running requests."""
    parser = argparse.ArgumentParser(prog="python -m tools.steady_step", description=__doc__)
    known = {fixed.commit: fixed for fixed in FIXED}
    parser.add_argument(
        "--against", nargs="+", default=list(known), metavar="COMMIT", help="commits (%(default)s)"
    )
    parser.add_argument("--pairs", type=int, default=11, help="runs of each tree (%(default)s)")
    parser.add_argument("--running", type=int, nargs="+", default=[64, 256, 1024], help="running requests")
    parser.add_argument("--steps", type=int, default=400, help="steps measured in each run (%(default)s)")
    arguments = parser.parse_args()
    options = ["--steps", str(arguments.steps), "--running", *map(str, arguments.running)]
    for name in arguments.against:
        fixed = known.get(name, FixedCommit(name, ""))
        with checkout(fixed.commit) as tree:
            pairs = [_pair(fixed, tree, options, number) for number in range(arguments.pairs)]
        for line in summarize(pairs):
            print(json.dumps({"against": fixed.commit, **line}), flush=True)


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A worktree of `commit` for the while."""
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory) / commit
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def summarize(pairs: Sequence[tuple[Sequence[Line], Sequence[Line]]]) -> Iterator[dict[str, object]]:
    """A line for each number of running requests. `pairs`: lines of our tree, and of the other one."""
    for index, first in enumerate(pairs[0][0]):
        line: dict[str, object] = {"running": first["running"], "pairs": len(pairs)}
        for part in PARTS:
            key = f"{part}_us_p50"
            ratios = [ours[index][key] / theirs[index][key] for ours, theirs in pairs]
            line[f"{part}_us"] = round(statistics.median(ours[index][key] for ours, _ in pairs), 1)
            line[f"{part}_us_there"] = round(statistics.median(theirs[index][key] for _, theirs in pairs), 1)
            line[f"{part}_ratio"] = round(statistics.median(ratios), 3)
            line[f"{part}_ratio_min"], line[f"{part}_ratio_max"] = (
                round(min(ratios), 3),
                round(max(ratios), 3),
            )
        yield line


def _pair(fixed: FixedCommit, tree: Path, options: list[str], number: int) -> tuple[list[Line], list[Line]]:
    if number % 2:
        theirs = _run(tree, fixed.bench, options)
        return _run(ROOT, BENCH, options), theirs
    ours = _run(ROOT, BENCH, options)
    return ours, _run(tree, fixed.bench, options)


def _run(tree: Path, bench: str, options: list[str]) -> list[Line]:
    environment = os.environ | {"PYTHONPATH": str(tree)}
    command = [sys.executable, "-m", bench, *options]
    printed = subprocess.run(
        command, cwd=tree, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return [json.loads(line) for line in printed.splitlines()]


if __name__ == "__main__":
    main()
