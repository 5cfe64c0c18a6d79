"""Weights rounded at load: how far from what they were."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.cpu.rounded_weights import rounding
from worker_svc.weights.held import hold
from worker_svc.weights.quantised import QuantisedMatrix
from worker_svc.weights.rounding import round_to_eight_bits

pytestmark = pytest.mark.skipif(native_kernels() is None, reason="there is no C++ compiler")
WEIGHTS = {
    "gaussian": torch.randn(64, 256, generator=torch.Generator().manual_seed(0)),
    "heavy tails": torch.randn(64, 256, generator=torch.Generator().manual_seed(1)) ** 3,
}


def round_matrix(weight: torch.Tensor, bits: int) -> QuantisedMatrix:
    return rounding(native_kernels())(weight, bits)


def error_of(weight: torch.Tensor, bits: int) -> float:
    """Root mean square of the error in root mean squares of the weight."""
    difference = round_matrix(weight, bits).dequantise() - weight
    return float(difference.square().mean().sqrt() / weight.square().mean().sqrt())


@pytest.mark.parametrize(("bits", "allowed"), [(8, 0.012), (4, 0.12)])
@pytest.mark.parametrize("kind", WEIGHTS)
def test_error_of_a_matrix(kind: str, bits: int, allowed: float) -> None:
    assert 0 < error_of(WEIGHTS[kind], bits) < allowed


@pytest.mark.parametrize("kind", WEIGHTS)
def test_four_bits_are_better_than_what_spans_all_numbers(kind: str) -> None:
    weight = WEIGHTS[kind]
    groups = weight.view(64, -1, 32)
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    scales = (high - low) / 15
    plain = ((groups - low) / scales).round() * scales + low
    plain_error = float((plain - groups).square().mean().sqrt() / weight.square().mean().sqrt())
    assert error_of(weight, 4) < 0.97 * plain_error


def test_numbers_that_were_of_four_bits_with_offsets_stay() -> None:
    """Q4_1's kind: codes 0 to 15 times a scale, and an offset."""
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 16, (8, 64), generator=generator).float()
    codes[:, ::32], codes[:, 1::32] = 0, 15
    weight = codes * 0.125 + 0.5
    assert torch.equal(round_matrix(weight, 4).dequantise(), weight)


def test_all_dtypes_are_rounded_alike() -> None:
    weight = WEIGHTS["gaussian"].bfloat16()
    as_float, as_half = weight.float(), weight.float().half()
    assert torch.equal(as_half.float(), as_float)
    expected = round_matrix(as_float, 4)
    for each in (weight, as_half):
        found = round_matrix(each, 4)
        assert torch.equal(found.codes, expected.codes)
        assert torch.equal(found.dequantise(), expected.dequantise())


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("size", [1.0, 1e-12])
def test_a_held_matrix_is_the_matrix_in_its_bits(bits: int, size: float) -> None:
    """Scales of tiny numbers are none of float16: they are held in float32."""
    matrix = round_matrix(WEIGHTS["gaussian"] * size, bits)
    held = hold(matrix)
    assert held.form == matrix.form and not held.rows().is_e2m1
    assert hold(replace(matrix, is_e2m1=True)).rows().is_e2m1
    assert held.shape == matrix.shape
    assert torch.equal(held.rows().dequantise(), matrix.dequantise())
    assert torch.equal(held.rows(slice(3, 9)).codes, matrix.codes[3:9])
    assert held.codes.nbytes == matrix.codes.numel() * bits // 8
    assert held.scales.element_size() == (2 if size == 1 else 4)


@pytest.mark.parametrize("bits", [4, 8])
def test_what_is_representable_stays(bits: int) -> None:
    """Whole numbers times a scale of float16, the largest code among them."""
    limit = 1 << bits - 1
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(1 - limit, limit, (8, 64), generator=generator)
    codes[:, ::32] = 127 if bits == 8 else -8
    codes[:, 1::32] = 7
    weight = codes * 0.125
    assert torch.equal(round_matrix(weight, bits).dequantise(), weight)


@pytest.mark.parametrize("bits", [4, 8])
def test_zeros_tiny_and_huge_numbers(bits: int) -> None:
    """Scales that float16 cannot hold are float32."""
    for size in (0.0, 1e-12, 1e12):
        weight = torch.randn(4, 64, generator=torch.Generator().manual_seed(0)) * size
        made = round_matrix(weight, bits).dequantise()
        assert (made - weight).abs().max() <= size
        assert not size or made.any()


@pytest.mark.parametrize("bits", [4, 8])
def test_a_number_that_is_none_is_seen(bits: int) -> None:
    weight = torch.ones(2, 64)
    weight[1, 3] = float("nan")
    made = round_matrix(weight, bits).dequantise()
    assert made[0].isfinite().all() and not made[1].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_kernel_rounds_to_eight_bits_as_it_is_defined(dtype: torch.dtype) -> None:
    """Zeros, ties, and scales below and above those of float16, too."""
    weight = torch.cat((*WEIGHTS.values(), torch.zeros(1, 256), torch.arange(256)[None] - 127.5))
    weight = (weight[:, None] * torch.tensor([1.0, 1e-7, 60000.0])[:, None]).flatten(0, 1)
    if dtype == torch.float32:
        weight = torch.cat((weight, weight * 1e-38, weight * 1e30))
    weight = weight.to(dtype)
    weight = weight[weight.isfinite().all(1)]
    expected, found = round_to_eight_bits(weight), round_matrix(weight, 8)
    assert torch.equal(found.codes, expected.codes)
    assert torch.equal(found.scales, expected.scales)
    assert found.form == expected.form


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_spoils_its_group_alone(bad: float) -> None:
    weight = WEIGHTS["gaussian"].clone()
    weight[5, 40] = bad
    found = round_matrix(weight, 8)
    finite = found.scales.isfinite()
    assert not finite[5, 1] and int(finite.sum()) == finite.numel() - 1
    assert not found.codes[5, 32:64].any()
