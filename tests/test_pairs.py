"""What is chosen of all combinations has all pairs, and few rows."""

from __future__ import annotations

import itertools

import pytest

from tests.pairs import covering, numbered


def rows_of(*sizes: int) -> list[dict[str, int]]:
    names = [f"p{i}" for i in range(len(sizes))]
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*(range(n) for n in sizes))]


def pairs_of(rows: list[dict[str, int]]) -> set[object]:
    return {pair for row in rows for pair in itertools.combinations(sorted(row.items()), 2)}


@pytest.mark.parametrize(
    ("sizes", "most"), [((2, 3, 3, 3), 12), ((4, 4, 2, 2, 2), 20), ((3, 5), 15), ((2, 2, 2), 4)]
)
def test_every_two_values_meet_in_few_rows(sizes: tuple[int, ...], most: int) -> None:
    rows = rows_of(*sizes)
    chosen = covering(rows)
    assert pairs_of([rows[at] for at in chosen]) == pairs_of(rows)
    assert len(set(chosen)) == len(chosen) <= most
    assert chosen == covering(rows)


def test_values_that_never_meet_are_not_missed() -> None:
    rows = [row for row in rows_of(3, 3, 3) if row["p0"] != row["p1"]]
    assert pairs_of([rows[at] for at in covering(rows)]) == pairs_of(rows)


def test_one_parameter_has_all_its_values() -> None:
    assert covering(rows_of(7)) == list(range(7))


def test_values_are_numbered_as_they_come() -> None:
    rows = [{"a": [1], "b": "x"}, {"a": [2], "b": "x"}, {"a": [1], "b": "y"}]
    assert numbered(rows) == [{"a": 0, "b": 0}, {"a": 1, "b": 0}, {"a": 0, "b": 1}]
