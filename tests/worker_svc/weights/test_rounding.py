"""Weights rounded at load: how far from what they were."""

from __future__ import annotations

import pytest
import torch

from worker_svc.weights.rounding import round_matrix

WEIGHTS = {
    "gaussian": torch.randn(64, 256, generator=torch.Generator().manual_seed(0)),
    "heavy tails": torch.randn(64, 256, generator=torch.Generator().manual_seed(1)) ** 3,
}


def error_of(weight: torch.Tensor, bits: int) -> float:
    """Root mean square of the error in root mean squares of the weight."""
    difference = round_matrix(weight, bits).dequantise() - weight
    return float(difference.square().mean().sqrt() / weight.square().mean().sqrt())


@pytest.mark.parametrize(("bits", "allowed"), [(8, 0.012), (4, 0.12)])
@pytest.mark.parametrize("kind", WEIGHTS)
def test_error_of_a_matrix(kind: str, bits: int, allowed: float) -> None:
    assert 0 < error_of(WEIGHTS[kind], bits) < allowed


def test_four_bits_are_better_than_the_scale_of_the_largest_number() -> None:
    weight = WEIGHTS["gaussian"]
    groups = weight.view(64, -1, 32)
    scales = groups.abs().amax(-1, keepdim=True) / 7
    plain = (groups / scales).round().clamp(-8, 7) * scales
    plain_error = float((plain - groups).square().mean().sqrt() / weight.square().mean().sqrt())
    assert error_of(weight, 4) < 0.97 * plain_error


@pytest.mark.parametrize("bits", [4, 8])
def test_what_is_representable_stays(bits: int) -> None:
    """Whole numbers times a scale of float16, the largest code among them."""
    limit = 1 << bits - 1
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(1 - limit, limit, (8, 64), generator=generator)
    codes[:, ::32] = 127 if bits == 8 else -8
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
