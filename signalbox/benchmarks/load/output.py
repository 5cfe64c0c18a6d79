"""How benches print: one JSON object per line, or a table whose lines come as they are measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from signalbox.benchmarks.load.summary import Figures


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    head: str
    key: str
    """Name of the figure."""
    digits: int = 1
    percent: bool = False

    def cell(self, figures: Figures) -> str:
        """The figure as text; - when it is not there."""
        value = figures.get(self.key)
        if value is None:
            return "-"
        if isinstance(value, float):
            return f"{value:.0%}" if self.percent else f"{value:,.{self.digits}f}"
        return str(value)

    @property
    def width(self) -> int:
        """Room for most values, so that lines printed one after another stand below each other."""
        return max(len(self.head), 8)


class Printer:
    """Prints lines of figures."""

    def __init__(self, columns: Sequence[Column], *, as_json: bool) -> None:
        self._columns, self._as_json = columns, as_json
        self._has_heads = False
        self.lines: list[Figures] = []
        """All so far."""

    def line(self, figures: Figures) -> None:
        """One more line."""
        self.lines.append(figures)
        if self._as_json:
            print(json.dumps(figures), flush=True)
            return
        if not self._has_heads:
            self._row([column.head for column in self._columns])
            self._has_heads = True
        self._row([column.cell(figures) for column in self._columns])

    def note(self, text: str) -> None:
        """A sentence for people; JSON has it as a figure."""
        if not self._as_json:
            print(text, flush=True)

    def _row(self, cells: Sequence[str]) -> None:
        pairs = zip(cells, self._columns, strict=True)
        print("  ".join(cell.rjust(column.width) for cell, column in pairs), flush=True)
