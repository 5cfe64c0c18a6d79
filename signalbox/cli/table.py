"""Tables and counts for a terminal."""

from __future__ import annotations

from collections.abc import Sequence


def render(rows: Sequence[Sequence[str]], num_word_columns: int) -> list[str]:
    """Lines of a table whose first row is its heads: words to the left, the columns behind them to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_padded(row, widths, num_word_columns)).rstrip() for row in rows]


def count(number: int, noun: str) -> str:
    """A number with its noun: `1 request`, `2 requests`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _padded(row: Sequence[str], widths: Sequence[int], num_word_columns: int) -> list[str]:
    cells = enumerate(zip(row, widths, strict=True))
    return [cell.ljust(width) if at < num_word_columns else cell.rjust(width) for at, (cell, width) in cells]
