"""Which of a test's combinations of parameters are run in CI.

Faults that need three parameters to meet are rare beside those that need one or two (Kuhn, Wallace and Gallo 2004), and
all combinations grow with the product of the parameters where pairs grow with the two largest.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence

import pytest
from _pytest.mark import ParameterSet

ALL_COMBINATIONS = bool(os.environ.get("SIGNALBOX_COMBINATIONS"))

"""As `make soak` tries; else so many that every two values of two parameters meet once."""
Pair = tuple[tuple[str, int], tuple[str, int]]


def covering(rows: Sequence[Mapping[str, int]]) -> list[int]:
    """Positions of a few of the `rows` (parameter to number of its value) in which all pairs of values of all rows
    stand: always that which brings most new ones, the first of equals. A row of one parameter always stands for
    itself."""
    pairs = [_pairs(row) for row in rows]
    missing = set[Pair]().union(*pairs)
    chosen = list[int]()
    while missing:
        best = max(range(len(rows)), key=lambda at: (len(pairs[at] & missing), -at))
        chosen.append(best)
        missing -= pairs[best]
    return sorted(chosen)


def numbered(rows: Sequence[Mapping[str, object]]) -> list[dict[str, int]]:
    """The same with a number for each value, by how it is written: values need not be hashable."""
    seen: dict[str, dict[str, int]] = {}
    return [
        {
            name: seen.setdefault(name, {}).setdefault(repr(value), len(seen[name]))
            for name, value in row.items()
        }
        for row in rows
    ]


def in_soak(*values: object) -> list[ParameterSet]:
    """Values of a parameter that only `make soak` tries."""
    return [pytest.param(value, marks=pytest.mark.soak) for value in values]


def every_other(ones: Iterable[object], others: Iterable[object]) -> list[ParameterSet]:
    """All combinations of two parameters; every other one, as the fields of one colour on a chessboard, only in
    `make soak`."""
    return [
        pytest.param(one, other, marks=[pytest.mark.soak] if (row + column) % 2 else [])
        for row, one in enumerate(ones)
        for column, other in enumerate(others)
    ]


def _pairs(row: Mapping[str, int]) -> set[Pair]:
    values = sorted(row.items())
    return set(itertools.combinations(values, 2)) or {(values[0], values[0])}
