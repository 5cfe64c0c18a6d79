"""Products on matrix units (AMX), and the vectors that compute the same numbers for few rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.runner.cpu.native_linear import PackedWeight

STEP_INPUTS = 32
TINY = 1e-39
"""Below the least number with a full mantissa."""
kernels = native_kernels()
pytestmark = pytest.mark.skipif(
    kernels is None or not kernels.has_matrix_units, reason="this machine has no matrix units"
)


def the_kernels() -> Kernels:
    assert kernels is not None
    return kernels


@pytest.fixture
def vectors_only() -> Iterator[Kernels]:
    """The kernels without matrix units."""
    library = the_kernels().library
    assert not library.signalbox_use_matrix_units(0)
    yield the_kernels()
    assert library.signalbox_use_matrix_units(1)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    """Numbers of very different sizes, so that another order of additions shows."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randn(*shape, generator=generator).mul(3).exp()
    return (torch.randn(*shape, generator=generator) * sizes).bfloat16()


def product(x: torch.Tensor, weight: PackedWeight, threads: int = 1) -> torch.Tensor:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return the_kernels().linear(x.contiguous(), weight.call)
    finally:
        torch.set_num_threads(before)


def fused(a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.float32]) -> NDArray[np.float32]:
    """a * b + c, rounded once: the product of two bfloat16 is exact in float64, and so nearly is the sum."""
    return (a.astype(np.float64) * b + c).astype(np.float32)


def as_documented(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Two chains in each 32 inputs, of the even and the odd ones, added up and then to the sum."""
    rows, columns = x.float().numpy(), weight.float().numpy()
    total = np.zeros((len(rows), len(columns)), np.float32)
    for step in range(0, rows.shape[1], STEP_INPUTS):
        chains = np.zeros((2, *total.shape), np.float32)
        for i in range(STEP_INPUTS):
            chains[i % 2] = fused(rows[:, None, step + i], columns[None, :, step + i], chains[i % 2])
        total += chains[0] + chains[1]
    return torch.from_numpy(total).bfloat16()


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 16, 17, 40])
def test_numbers_are_the_documented_ones(rows: int) -> None:
    """Y2: vectors and matrix units compute the same two chains."""
    x, weight = random(rows, 128), random(100, 128, seed=1)
    assert torch.equal(product(x, PackedWeight(weight)), as_documented(x, weight))


@pytest.mark.parametrize("outputs", [32, 64, 96, 100, 1000])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_row_does_not_depend_on_the_others(outputs: int, threads: int) -> None:
    """Y2: whatever their number, their places among units, and the threads."""
    x, bias = random(77, 192), random(outputs, seed=2)
    weight = PackedWeight(random(outputs, 192, seed=1), bias)
    whole = product(x, weight)
    for first in (0, 3):
        for count in (1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 64, 74):
            rows = slice(first, first + count)
            assert torch.equal(product(x[rows], weight, threads), whole[rows]), (first, count)


@pytest.mark.parametrize("threads", [1, 2])
def test_many_rows_are_shared_in_groups(threads: int) -> None:
    """Y2: a megabyte of rows at a time, while all tiles pass it; the last group is no whole number of units."""
    x, weight = random(203, 6144), PackedWeight(random(40, 6144, seed=1))
    few = torch.cat([product(part, weight) for part in x.split(4)])
    assert torch.equal(product(x, weight, threads), few)


@pytest.mark.parametrize("small", ["rows", "weights", "products"])
def test_tiny_numbers_are_zeros_in_both(small: str) -> None:
    """Y2: units know no numbers below the least that has a full mantissa; nor do the vectors here."""
    x, weight = random(20, 64), random(64, 64, seed=1)
    if small == "rows":
        x[:, ::3] = TINY
    elif small == "weights":
        weight[:, ::3] = TINY
    else:
        x, weight = x.mul(1e-19).bfloat16(), weight.mul(1e-19).bfloat16()
    packed = PackedWeight(weight)
    whole = product(x, packed)
    assert all(torch.equal(product(x[:rows], packed), whole[:rows]) for rows in (1, 2, 3, 4, 5, 16))
    if small == "rows":
        kept = torch.ones(64, dtype=torch.bool)
        kept[::3] = False
        assert torch.equal(whole, product(x * kept, packed))


@pytest.mark.parametrize("rows", [1, 3, 20])
def test_what_is_not_finite_stays_in_its_row(rows: int) -> None:
    """E6: for its neighbours nothing changes."""
    x, packed = random(rows, 64), PackedWeight(random(64, 64, seed=1))
    expected = product(x, packed)
    spoilt = torch.cat([x, torch.full((1, 64), float("nan"), dtype=torch.bfloat16)])
    result = product(spoilt, packed)
    assert torch.equal(result[:rows], expected)
    assert not result[rows].isfinite().any()


def test_without_them_the_dot_product_serves(vectors_only: Kernels) -> None:
    """Where the system does not let us use them. Its sums are in another order: hence the class of numbers (I10)."""
    x, weight = random(20, 1024), random(640, 1024, seed=1)
    packed = PackedWeight(weight)
    result = vectors_only.linear(x, packed.call)
    exact = (x.double() @ weight.double().T).float()
    scale = (x.double().abs() @ weight.double().abs().T).float()
    assert ((result.float() - exact).abs() <= scale * 2**-7).all()
    assert not torch.equal(result, as_documented(x, weight))
