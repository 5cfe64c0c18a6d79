"""Attention by the native kernels: what a row's result does not depend on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
import torch

from tests.worker_svc.runner.test_paged_attention import Case
from worker_svc.runner.attention import attention
from worker_svc.runner.attention.attention import PagedBatch, attend
from worker_svc.runner.attention.torch_attention import Scores
from worker_svc.runner.attention.ways import Way

kernels = attention.native_kernels()
pytestmark = pytest.mark.skipif(kernels is None, reason="there is no C++ compiler")
needs_dot = pytest.mark.skipif(
    kernels is None or not kernels.has_dot, reason="this machine has no dot product"
)


def alone(case: Case, row: int) -> torch.Tensor:
    """The result of one row in a batch of its own."""
    first, end = case.batch.query_starts[row : row + 2]
    batch = PagedBatch(
        cache=case.batch.cache,
        num_decode_rows=1,
        query_starts=np.array([0, end - first], np.int32),
        positions=case.batch.positions[first:end],
        block_tables=case.batch.block_tables[row : row + 1],
        device=torch.device("cpu"),
    )
    return attend(case.query[first:end], case.layer, batch, SCORES)


SCORES = Scores(scaling=0.2, sliding_window=1100)


def use_units(wanted: bool) -> None:
    assert kernels is not None
    assert bool(kernels.library.signalbox_use_matrix_units(wanted)) == wanted


@pytest.fixture
def used_units() -> Iterator[set[bool]]:
    """Whether matrix units may be used: False, and True where there are any. After the test they are as before."""
    assert kernels is not None
    yield {False, kernels.has_matrix_units}
    use_units(kernels.has_matrix_units)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(9, 3, 64), (10, 2, 48), (6, 1, 128)])
def test_a_row_does_not_depend_on_how_splits_are_brought_together(
    shape: tuple[int, int, int], dtype: torch.dtype
) -> None:
    """Y2: tasks of many splits, where there are many rows, give the numbers of tasks of one split."""
    rows = [(0, 1), (1500, 1), (127, 1), (128, 3), (900, 2), *[(1400 + 13 * i, 1) for i in range(12)]]
    case = Case(rows, len(rows), shape, dtype=dtype)
    together = attend(case.query, case.layer, case.batch, SCORES)
    assert (together.double() - case.expected(SCORES)).abs().max() < (
        2e-2 if dtype == torch.bfloat16 else 4e-6
    )
    for row, first in enumerate(case.batch.query_starts[:-1]):
        one = alone(case, row)
        assert torch.equal(one, together[first : first + len(one)]), rows[row]


def attend_part(case: Case, row: int, first: int, end: int) -> torch.Tensor:
    """Query tokens [first, end) of a row, in a batch of their own."""
    start = case.batch.query_starts[row]
    part = slice(start + first, start + end)
    batch = PagedBatch(
        cache=case.batch.cache,
        num_decode_rows=0,
        query_starts=np.array([0, end - first], np.int32),
        positions=case.batch.positions[part],
        block_tables=case.batch.block_tables[row : row + 1],
        device=torch.device("cpu"),
    )
    return attend(case.query[part], case.layer, batch, SCORES)


@needs_dot
@pytest.mark.parametrize("units", [False, True], ids=["vectors", "units"])
@pytest.mark.parametrize(("shape", "block_size"), [((9, 3, 64), 16), ((4, 1, 96), 48), ((2, 2, 32), 1)])
def test_a_prompt_does_not_depend_on_how_it_is_cut(
    shape: tuple[int, int, int], block_size: int, units: bool, used_units: set[bool]
) -> None:
    """Y2: nor on its company, with matrix units and without; values are those of float64."""
    if units not in used_units:
        pytest.skip("this machine has no matrix units")
    use_units(units)
    rows = [(0, 150), (33, 17), (1200, 80), (5, 1), (64, 16)]
    case = Case(rows, 0, shape, block_size=block_size, dtype=torch.bfloat16)
    together = attend(case.query, case.layer, case.batch, SCORES)
    assert (together.double() - case.expected(SCORES)).abs().max() < 2e-2
    for row, cuts in (
        (0, [0, 16, 33, 97, 150]),
        (0, [0, 150]),
        (0, [*range(0, 130, 13), 149, 150]),
        (1, [0, 17]),
        (2, [0, 19, 51, 80]),
        (2, [0, 1, 3, 80]),
        (3, [0, 1]),
        (4, [0, 16]),
    ):
        start = case.batch.query_starts[row]
        for first, end in pairwise(cuts):
            part = attend_part(case, row, first, end)
            assert torch.equal(part, together[start + first : start + end]), (rows[row], first, end)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_many_rows_of_one_request_are_those_of_one_row(dtype: torch.dtype) -> None:
    """Y2: what was decoded token by token has the same numbers when it is computed again, beside rows of any way."""
    rows = [(700, 5), (300, 1), *[(1100 + 4 * i, 4) for i in range(6)]]
    case = Case(rows, 2, (9, 3, 64), dtype=dtype)
    case.batch.ways[2:] = Way.AGAIN
    together = attend(case.query, case.layer, case.batch, SCORES)
    for row, first in enumerate(case.batch.query_starts[:-1]):
        one = alone(case, row)
        assert torch.equal(one, together[first : first + len(one)]), rows[row]


@needs_dot
def test_a_later_token_that_is_not_finite_changes_no_other_prompt(used_units: set[bool]) -> None:
    """E6: what a block holds behind the context, and what other rows hold, may be anything."""
    for units in used_units:
        use_units(units)
        case = Case([(0, 40), (0, 70)], 0, (9, 3, 64), dtype=torch.bfloat16)
        expected = attend(case.query, case.layer, case.batch, SCORES)
        own = case.batch.block_tables[0]
        case.layer.keys[own[3:]] = torch.nan
        case.layer.values[own[3:]] = torch.nan
        case.layer.keys[own[2], :, 8:] = torch.nan
        case.layer.values[own[2], :, 8:] = torch.inf
        assert torch.equal(attend(case.query, case.layer, case.batch, SCORES), expected)
