"""Products with whole numbers: the same bits by matrix units (AMX) as by vectors, few rows as many."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.worker_svc.runner.cpu.test_kept_linear import FORMATS, make_matrix, random_rows
from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.runner.cpu.packed_codes import PackedCodes

ROWS = (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 41, 48, 49, 63, 64, 65, 70)
MOST_ROWS = ROWS[-1]
kernels = native_kernels()
pytestmark = pytest.mark.skipif(
    kernels is None or not kernels.has_matrix_units, reason="this machine has no matrix units"
)


@pytest.fixture
def units() -> Iterator[Kernels]:
    assert kernels is not None
    yield kernels
    kernels.library.signalbox_use_matrix_units(1)


def by_vectors(kernels: Kernels, x: torch.Tensor, packed: PackedCodes) -> torch.Tensor:
    assert not kernels.library.signalbox_use_matrix_units(0)
    out = kernels.linear_quantised(x, packed.call)
    assert kernels.library.signalbox_use_matrix_units(1)
    return out


@pytest.mark.parametrize(("bits", "group", "has_offsets", "is_half", "is_e2m1"), FORMATS)
def test_units_and_vectors_give_the_same_bits(
    units: Kernels, bits: int, group: int, has_offsets: bool, is_half: bool, is_e2m1: bool
) -> None:
    """Y2: for any number of rows, by one thread and by three; 100 columns are three tiles and a part of one."""
    matrix = make_matrix(100, bits, group, has_offsets, is_half, is_e2m1=is_e2m1)
    packed = PackedCodes(matrix, torch.randn(100))
    x = random_rows(MOST_ROWS, torch.float32)
    expected = torch.cat([by_vectors(units, x[i : i + 1], packed) for i in range(MOST_ROWS)])
    for rows in ROWS:
        torch.set_num_threads(1 + rows % 3)
        try:
            assert torch.equal(units.linear_quantised(x[:rows], packed.call), expected[:rows]), rows
        finally:
            torch.set_num_threads(1)
    assert torch.equal(by_vectors(units, x, packed), expected)


def test_more_rows_than_pass_at_once(units: Kernels) -> None:
    """Y2: also those that are left when the others have passed."""
    packed = PackedCodes(make_matrix(64, 8, 32))
    x = random_rows(530, torch.bfloat16)
    for rows in (255, 256, 257, 272, 513, 530):
        assert torch.equal(units.linear_quantised(x[:rows], packed.call), by_vectors(units, x[:rows], packed))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_stays_in_its_row(units: Kernels, bits: int, bad: float) -> None:
    """Y2: and is found there, by units as by vectors."""
    packed = PackedCodes(make_matrix(64, bits, 32, True))
    x = random_rows(MOST_ROWS, torch.float32)
    expected = by_vectors(units, x, packed)
    x[17, 40] = bad
    actual = units.linear_quantised(x, packed.call)
    assert not actual[17].isfinite().any()
    others = [i for i in range(MOST_ROWS) if i != 17]
    assert torch.equal(actual[others], expected[others])
