"""Reads the tables of docs/design/waits.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE = "docs/design/waits.md"
CODE = re.compile(r"`([^`]+)`")
WHERE = re.compile(r"`([\w/]+\.py)` `([\w.]+)`")
RULE = re.compile(r"\b([A-Z]{1,2}\d+)\b(?: to ([A-Z]{1,2}\d+)\b)?")
SETTING = re.compile(r"[A-Z][A-Z_]+|[a-z]+(?:_[a-z]+)+")
NOBODY = "-"
NONE = "none:"


@dataclass(frozen=True)
class Row:
    """One row with a place in code, or of the states that wait."""

    line: int
    where: str
    calls: str
    party: str
    watcher: str
    deadline: str
    then: str

    @property
    def places(self) -> list[tuple[str, str, str]]:
        """File, function and call of each wait; none for a state."""
        found = WHERE.fullmatch(self.where)
        return [(found[1], found[2], call) for call in CODE.findall(self.calls)] if found else []

    @property
    def names(self) -> list[str]:
        """Constants and settings that the deadline names."""
        return [name for name in CODE.findall(self.deadline) if SETTING.fullmatch(name)]

    @property
    def rules(self) -> list[str]:
        """Ids that the row names."""
        text = CODE.sub(
            "", f"{self.watcher} {self.then} {self.party} {self.where if not self.places else ''}"
        )
        return [rule for pair in RULE.findall(text) for rule in pair if rule]


def read_rows(root: Path) -> Iterator[Row]:
    """All rows of waits: those of six cells, and states, which have five."""
    for number, line in enumerate((root / PAGE).read_text().splitlines(), 1):
        if not line.startswith("|") or line.startswith(("|---", "| where |", "| what waits |")):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if WHERE.fullmatch(cells[0]):
            yield Row(number, *cells)
        else:
            what, party, watcher, deadline, then = cells
            yield Row(number, what, "", party, watcher, deadline, then)
