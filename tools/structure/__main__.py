"""The counts that may only fall, beside their budgets, and further figures of a checkout.

    python -m tools.structure                    # of this checkout, as a table
    python -m tools.structure --tighten          # lower the budgets of tools/budgets.toml to the counts
    python -m tools.structure --json --tree ../before    # of another one

Exits with 1 when a count is not its budget, or a commit has raised one wrongly.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.structure.budgets import PATH, complaints, read_budgets, tightened, write_budgets
from tools.structure.calls.measure import PYTHON, count_in_fresh_process
from tools.structure.figures import Counts, measure
from tools.structure.history import wrong_raises

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.structure", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tree", type=Path, default=ROOT, help="a checkout")
    parser.add_argument("--json", action="store_true", help="one JSON object, and no check")
    parser.add_argument("--tighten", action="store_true", help="write lower budgets")
    arguments = parser.parse_args()
    tree: Path = arguments.tree
    counts, figures = measure(tree)
    has_calls = sys.version_info[:2] == PYTHON and (tree / "tools/structure/calls/measure.py").exists()
    if has_calls:
        counts |= count_in_fresh_process(tree)
    elif arguments.tighten:
        parser.error("calls are counted on Python 3.11 only")
    if arguments.json:
        print(json.dumps({"counts": counts, **figures}, indent=2))
        return 0
    budgets = read_budgets((tree / PATH).read_text()) if (tree / PATH).exists() else {}
    if arguments.tighten:
        budgets = tightened(counts, budgets)
        (tree / PATH).write_text(write_budgets(budgets))
    _print(counts, budgets, figures)
    if not has_calls:
        budgets = {name: value for name, value in budgets.items() if not name.startswith("calls.")}
    wrong = [*complaints(counts, budgets), *wrong_raises(tree)]
    for line in wrong:
        print(line, file=sys.stderr)
    return int(bool(wrong))


def _print(counts: Counts, budgets: Mapping[str, int], figures: Mapping[str, object]) -> None:
    width = max(map(len, counts))
    print(f"{'count':{width}} {'now':>6} {'budget':>6}")
    for name, count in counts.items():
        print(f"{name:{width}} {count:6} {budgets.get(name, '-'):>6}")
    print("\nno budget:")
    for name, value in figures.items():
        lines = value if isinstance(value, list) else [value]
        print(f"  {name}:", *lines, sep="\n    " if len(lines) > 1 else " ")


if __name__ == "__main__":
    raise SystemExit(main())
