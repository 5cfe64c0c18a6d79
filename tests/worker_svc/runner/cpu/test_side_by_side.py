"""Products of the same inputs as one product."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.worker_svc.runner.cpu.packing import packs
from worker_svc.runner.cpu.kept_linear import KeptLinear
from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.runner.cpu.packed_linear import TOLERANCES, PackingError, relative_error
from worker_svc.runner.cpu.recurrent.side_by_side import SideBySide, one_product
from worker_svc.runner.model.quantised_linear import QuantisedLinear
from worker_svc.weights.held import hold
from worker_svc.weights.rounding import round_to_eight_bits

WIDTHS = (48, 5, 70)
ORDER = torch.randperm(sum(WIDTHS), generator=torch.Generator().manual_seed(0))


def make_linears(dtype: torch.dtype) -> list[nn.Module]:
    torch.manual_seed(1)
    return [nn.Linear(64, width, bias=width == 5).to(dtype) for width in WIDTHS]


def quantised(linear: nn.Module) -> QuantisedLinear:
    assert isinstance(linear, nn.Linear)
    return QuantisedLinear(
        hold(round_to_eight_bits(linear.weight.detach())), linear.bias, linear.weight.dtype
    )


@torch.inference_mode()
@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("order", [None, ORDER], ids=["as they are", "in an order"])
def test_one_product_gives_what_all_give(
    kernels: Kernels, dtype: torch.dtype, order: torch.Tensor | None, is_kept: bool
) -> None:
    if not is_kept and not kernels.has_dot and not packs(dtype):
        pytest.skip("nothing packs such weights on this CPU")
    linears = make_linears(dtype)
    if is_kept:
        linears = [quantised(linear) for linear in linears]
    layers = SideBySide(linears, order)
    x = torch.randn(7, 64, generator=torch.Generator().manual_seed(2)).to(dtype)
    expected = layers(x)
    whole = one_product(layers, kernels)
    assert isinstance(whole, KeptLinear) == is_kept
    assert relative_error(whole(x), expected) <= TOLERANCES[dtype]


def test_whole_numbers_beside_others_are_left(kernels: Kernels) -> None:
    linears = make_linears(torch.float32)
    layers = SideBySide([quantised(linears[0]), *linears[1:]], None)
    with torch.inference_mode(), pytest.raises(PackingError, match="some are not"):
        one_product(layers, kernels)
    assert layers(torch.zeros(1, 64)).shape == (1, sum(WIDTHS))
