"""The list of public names, and which of its lines may go."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tools.public_names import interfaces, messages, telemetry
from tools.public_names.sources import ROOT

LIST = ROOT / "tests" / "public_names.txt"
REMOVED = ROOT / "docs" / "removed.md"
PACKAGE = ("signalbox", "v1")
"""The parts of the name of a protobuf package."""
_ROW = re.compile(r"^\| `([^`]+)`", re.MULTILINE)


def collect() -> list[str]:
    """All public names, sorted: one line each, the kind of the name first."""
    kinds = (
        *(
            interfaces.settings,
            interfaces.variables,
            interfaces.commands,
            interfaces.errors,
            interfaces.paths,
        ),
        *(messages.messages, telemetry.names, telemetry.labels, telemetry.log_keys),
    )
    return sorted({line for kind in kinds for line in kind()})


def read_list() -> list[str]:
    """The lines of the file; none if there is no file."""
    return LIST.read_text().splitlines() if LIST.exists() else []


def read_removed() -> frozenset[str]:
    """Names in the first column of docs/removed.md."""
    return frozenset(_ROW.findall(REMOVED.read_text())) if REMOVED.exists() else frozenset()


def unexplained(
    before: Iterable[str], after: Iterable[str], removed: Iterable[str] | None = None
) -> list[str]:
    """Lines of `before` that are not in `after` and may not go.

    A line may go if `removed` (None: those of docs/removed.md) has its name, or one that contains it: the command of an
    option, the message of a field, the metric of a label. A field or value may also go if its number and name are
    reserved.
    """
    gone = sorted(set(before) - set(after))
    if not gone:
        return []
    known = set(read_removed() if removed is None else removed)
    is_reserved = messages.reserved()
    return [line for line in gone if line not in is_reserved and known.isdisjoint(owners(line))]


def owners(line: str) -> Iterator[str]:
    """The names that explain the removal of a line, from the narrowest to the widest."""
    kind, _, name = line.partition(" ")
    words = name.split(" ")
    if kind == "setting":
        yield from (words[0], " ".join(words[1:]), words[2])
    elif kind in ("command", "option"):
        yield from (" ".join(words[:count]) for count in range(len(words), 1, -1))
    elif kind in ("label", "path"):
        yield from (name, words[0] if kind == "label" else words[1])
    elif kind in ("message", "field", "enum", "value", "service", "method"):
        parts = words[0].split(".")
        yield from (".".join(parts[:count]) for count in range(len(parts), len(PACKAGE), -1))
    else:
        yield name
