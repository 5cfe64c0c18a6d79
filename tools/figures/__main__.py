"""Writes the figures of the documents from docs/data, measures them, or tells which are old.

    python -m tools.figures                       # texts in README.md and docs/performance.md, and docs/figures/*.svg
    python -m tools.figures --measure             # measures those that take minutes; then as above
    python -m tools.figures --measure tenants
    python -m tools.figures --check               # prints which figures are old
    python -m tools.figures --check release       # fails, too, if a figure of README.md is old

A figure is old when functions changed that ran while it was measured (tools/figures/digest.py says what a change is).
"""

from __future__ import annotations

import argparse
import sys

from signalbox.benchmarks.plots import KINDS, draw
from tools.figures.calls import ROOT
from tools.figures.catalogue import FIGURES
from tools.figures.measure import measure
from tools.figures.record import DATA, age, read
from tools.figures.render import DOCUMENTS, render


def main() -> int:
    """Exit status 1: a figure of the README is old, and the check is that of a release."""
    parser = argparse.ArgumentParser(prog="python -m tools.figures", description=__doc__)
    parser.add_argument(
        "--measure", nargs="*", choices=FIGURES, metavar="NAME", help=f"of {', '.join(FIGURES)}"
    )
    parser.add_argument(
        "--check", nargs="?", const="1", metavar="release", help="print which figures are old"
    )
    arguments = parser.parse_args()
    if arguments.check is not None:
        lines, is_old = check()
        print("\n".join(lines))
        return int(is_old and arguments.check == "release")
    if arguments.measure is not None:
        for name in arguments.measure or [figure.name for figure in FIGURES.values() if figure.is_quick]:
            print(f"measuring {name}", file=sys.stderr, flush=True)
            measure(FIGURES[name])
    for document in DOCUMENTS:
        (ROOT / document).write_text(render(document))
    for path in sorted(DATA.glob("*.jsonl")):
        kind = path.stem.partition("-")[0]
        if kind in KINDS:
            draw(kind, read(path.stem)[1], ROOT / "docs" / "figures" / f"{path.stem}.svg")
    return 0


def check() -> tuple[list[str], bool]:
    """A line for each figure that can be measured, and whether one of the README's is old."""
    lines, is_old = [], False
    for figure in FIGURES.values():
        record, _ = read(figure.name)
        found = age(record.code)
        told = (
            f"{found.num_changed} of {found.num_run} functions changed"
            if found.num_run
            else "its code was not recorded"
        )
        where = " (README)" if figure.is_in_readme else ""
        state = "fresh" if found.is_fresh else "old"
        lines.append(f"{state}: {figure.name}{where}: {told} since {record.commit}, {record.date}")
        is_old |= figure.is_in_readme and not found.is_fresh
    return lines, is_old


if __name__ == "__main__":
    raise SystemExit(main())
