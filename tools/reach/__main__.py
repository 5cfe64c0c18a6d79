"""The command (see the package)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import tools.reach
from tools.reach.changes import NoBaseError, read_change
from tools.reach.choice import Choice, choose
from tools.reach.history import Verdict, judge
from tools.reach.tree import read_checkout

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Prints what is asked for; 1 if a test of a past fix is not reached, or there is nothing to compare with."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.reach",
        description=tools.reach.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files", nargs="*", help="files that are taken to be changed, instead of those that are"
    )
    parser.add_argument("--since", default="", metavar="COMMIT", help="what is compared with")
    parser.add_argument(
        "--costs", type=Path, metavar="FILE", help="sum the seconds that `pytest --costs-to` wrote"
    )
    parser.add_argument("--history", type=int, metavar="N", help="judge the last N fixes; JSON lines")
    parser.add_argument("--until", default="HEAD", metavar="COMMIT", help="the last commit of --history")
    args = parser.parse_args()
    if args.history:
        missed = 0
        for verdict in judge(ROOT, args.history, args.until):
            print(json.dumps(_row(verdict)), flush=True)
            missed += bool(verdict.missed)
        return min(missed, 1)
    return _show(args)


def _row(verdict: Verdict) -> dict[str, object]:
    fix = verdict.fix
    return {
        "commit": fix.commit,
        "subject": fix.subject,
        "product": len(fix.product),
        "tests": list(fix.tests),
        "selected": verdict.selected,
        "of": verdict.of,
        "missed": list(verdict.missed),
    }


def _show(args: argparse.Namespace) -> int:
    tree, costs = read_checkout(ROOT), _costs(args.costs)
    if args.files:
        for file in args.files:
            choice = choose(tree, [file])
            print(
                f"{len(choice.selected):4} of {len(choice.selected | choice.left_out)} {_cost(choice, costs)}{file}"
            )
        return 0
    try:
        change = read_change(ROOT, args.since)
    except NoBaseError as error:
        print(error, file=sys.stderr)
        return 1
    choice = choose(tree, change.paths)
    print(*sorted(choice.selected), *choice.smoke, sep="\n")
    return 0


def _costs(path: Path | None) -> Mapping[str, float]:
    """Processor seconds by test."""
    tests = json.loads(path.read_text())["tests"] if path else []
    return {test["nodeid"]: float(test["cpu_s"]) for test in tests}


def _cost(choice: Choice, costs: Mapping[str, float]) -> str:
    if not costs:
        return ""
    smoke = tuple(choice.smoke)
    chosen = {
        name: cpu_s
        for name, cpu_s in costs.items()
        if name.partition("::")[0] in choice.selected or (smoke and name.startswith(smoke))
    }
    return f"{len(chosen):5} tests {sum(chosen.values()):6.1f} CPU s  "


if __name__ == "__main__":
    sys.exit(main())
