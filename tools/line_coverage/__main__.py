"""Which lines of the shipped packages a command runs, in all processes that it starts.

    python -m tools.line_coverage FOLDER -- make test ALL=1      # measures; again: adds to what FOLDER has
    python -m tools.line_coverage FOLDER --tree ../older -- .venv/bin/python -m pytest -n 2 tests
    python -m tools.line_coverage FOLDER [FOLDER...]             # the share of lines, by package and in all

A process is measured if it has the PYTHONPATH of the command. Lines are those at which a statement begins; docstrings
and what only type checkers read are not among them. A marked statement takes about 40 ns more.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.line_coverage.hook import sitecustomize
from tools.packages import PRODUCT

HOOK = Path(sitecustomize.__file__).parent


def prepare(folder: Path, tree: Path) -> None:
    """Makes a folder for the files that the tree has now."""
    index, size = dict[str, int](), 0
    for package in PRODUCT:
        for path in sorted((tree / package).rglob("*.py")):
            index[str(path.resolve())] = size
            size += path.read_bytes().count(b"\n") + 1
    folder.mkdir(parents=True)
    (folder / "hits").write_bytes(bytes(size))
    (folder / "tree").write_text(str(tree.resolve()))
    (folder / "index.json").write_text(json.dumps(index))


def measure(folder: Path, tree: Path, command: Sequence[str]) -> int:
    """Runs a command in the tree. Returns its status."""
    path = [str(HOOK), *filter(None, [os.environ.get("PYTHONPATH")])]
    ours = {
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONPYCACHEPREFIX": str(folder.resolve() / "cache"),
        "SIGNALBOX_LINES": str(folder.resolve()),
    }
    return subprocess.run(command, check=False, cwd=tree, env=os.environ | ours).returncode


def found(folder: Path) -> dict[str, tuple[int, int]]:
    """By package: lines that have run, and all."""
    index: Mapping[str, int] = json.loads((folder / "index.json").read_text())
    hits, tree = (folder / "hits").read_bytes(), Path((folder / "tree").read_text())
    shares = dict.fromkeys(PRODUCT, (0, 0))
    for name, first in index.items():
        package = Path(name).relative_to(tree).parts[0]
        lines = sitecustomize.lines(Path(name).read_text())
        num_run = sum(hits[first + line - 1] for line in lines)
        shares[package] = shares[package][0] + num_run, shares[package][1] + len(lines)
    return shares


def table(folder: Path) -> str:
    """The shares of a folder."""
    shares = found(folder)
    shares["in all"] = sum(run for run, _ in shares.values()), sum(lines for _, lines in shares.values())
    rows = [
        f"  {name:14} {run:6} of {all_:6}  {100 * run / max(all_, 1):6.2f} %"
        for name, (run, all_) in shares.items()
    ]
    return "\n".join([f"{folder}:", *rows])


def main(words: Sequence[str]) -> int:
    """The command's status; without one, 0."""
    words, command = list(words), []
    if "--" in words:
        at = words.index("--")
        words, command = words[:at], words[at + 1 :]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", metavar="FOLDER", type=Path, nargs="+")
    parser.add_argument("--tree", type=Path, default=Path(), help="a checkout (this one)")
    args = parser.parse_args(words)
    if command and len(args.folders) > 1:
        parser.error("a command is measured in one folder")
    status = 0
    if command:
        if not args.folders[0].exists():
            prepare(args.folders[0], args.tree)
        status = measure(args.folders[0], args.tree, command)
    for folder in args.folders:
        print(table(folder))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
