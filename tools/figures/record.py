"""Where, when and of which code a file of docs/data was measured: its first line."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from tools.figures.calls import ROOT, Calls
from tools.figures.digest import digests_of, outermost, total
from tools.packages import PRODUCT
from tools.structure.sources import GENERATED

DATA = ROOT / "docs" / "data"
KEY = "measured"
BUSY = 1.5
"""Load average above which it is printed beside the figures. The measuring command itself adds up to one."""
Line = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """The first line of a file of data."""

    commit: str
    """Ends with -dirty if the product differed from the commit."""
    machine: str
    date: str
    commands: list[str] = field(default_factory=list)
    digest: str = ""
    """Of `code`; empty: the code was not recorded, and the figure is never fresh."""
    code: dict[str, dict[str, str]] = field(default_factory=dict)
    """Digests of the functions that ran, by file and name."""


@dataclass(frozen=True)
class Age:
    """How much of the code of a figure has changed."""

    num_run: int
    num_changed: int

    @property
    def is_fresh(self) -> bool:
        """The code was recorded, and is still the same."""
        return bool(self.num_run) and not self.num_changed


def read(name: str) -> tuple[Record, list[Line]]:
    """The record and the other lines of docs/data/NAME.jsonl. Raises ValueError without a record."""
    first, *lines = [json.loads(text) for text in (DATA / f"{name}.jsonl").read_text().splitlines()]
    if KEY not in first:
        raise ValueError(f"docs/data/{name}.jsonl does not begin with its record")
    return Record(**first[KEY]), lines


def write(name: str, record: Record, lines: Iterable[Line]) -> None:
    """Replaces docs/data/NAME.jsonl."""
    rows = [{KEY: asdict(record)}, *lines]
    (DATA / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def make_record(commands: list[str], calls: Calls, machine: str) -> Record:
    """The record of a measurement of the code as it is now."""
    code = code_of(calls)
    today = datetime.now(UTC).date().isoformat()
    return Record(commit_of_product(), machine, today, commands, total(code), code)


def code_of(calls: Calls) -> dict[str, dict[str, str]]:
    """Digests of functions, by file and name, without generated code and bodies of modules and classes."""
    found: dict[str, dict[str, str]] = {}
    for file, name in sorted(calls):
        value = None if file.endswith(GENERATED) else _digests(file).get(outermost(name))
        if value is not None:
            found.setdefault(file, {})[outermost(name)] = value
    return found


def age(code: Mapping[str, Mapping[str, str]]) -> Age:
    """Compares recorded code with that of the checkout. A function that moved to another file has not changed."""
    gone = {
        (name, value)
        for file, of_file in code.items()
        for name, value in of_file.items()
        if _digests(file).get(name) != value
    }
    moved = gone & set(_everywhere({name for name, _ in gone})) if gone else set[tuple[str, str]]()
    return Age(sum(map(len, code.values())), len(gone - moved))


def commit_of_product() -> str:
    """The short hash of HEAD."""
    commit = _git("rev-parse", "--short=8", "HEAD")
    return f"{commit}-dirty" if _git("status", "--porcelain", "--", *PRODUCT) else commit


def this_machine() -> str:
    """Model and number of the CPUs of this machine, and how busy it has been for a minute, if it was."""
    rows = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((row.partition(": ")[2] for row in rows if row.startswith("model name")), "unknown CPU")
    load = os.getloadavg()[0]
    return f"{model}, {os.cpu_count()} CPUs" + (f", load {load:.0f}" if load >= BUSY else "")


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


@cache
def _digests(file: str) -> Mapping[str, str]:
    path = ROOT / file
    return digests_of(path.read_text()) if path.exists() else {}


def _everywhere(names: Collection[str]) -> Iterator[tuple[str, str]]:
    """The functions of the product with these names, and their digests."""
    for package in PRODUCT:
        for path in (ROOT / package).rglob("*.py"):
            text = "" if path.name.endswith(GENERATED) else path.read_text()
            if any(f"def {name.rpartition('.')[2]}(" in text for name in names):
                yield from digests_of(text, names).items()
