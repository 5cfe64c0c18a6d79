"""Linear layers of the same inputs, whose outputs are wanted side by side."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from worker_svc.runner.cpu.kept_linear import KeptLinear, quantised_only
from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.runner.cpu.native_linear import NativeLinear, uses_dot
from worker_svc.runner.cpu.packed_linear import PackingError, joined, pack, weight_and_bias
from worker_svc.runner.model.quantised_linear import QuantisedLinear


class SideBySide(nn.ModuleList):
    """The outputs of each, joined behind the products."""

    def __init__(self, linears: Sequence[nn.Module], order: torch.Tensor | None) -> None:
        """order: int64 `[outputs]` the output that comes where; None: as they are."""
        super().__init__(linears)
        self.order = order

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[..., in]` to `[..., outputs]`."""
        whole = torch.cat([linear(x) for linear in self], dim=-1)
        return whole if self.order is None else whole[..., self.order].contiguous()


def one_product(layers: SideBySide, kernels: Kernels) -> nn.Module:
    """One layer in the place of `layers`, whose weights are not kept. PackingError where there is none."""
    linears = list(layers)
    kept = quantised_only(linears)
    if kept is not None:
        return KeptLinear(kept, kernels, layers.order)
    if any(isinstance(linear, QuantisedLinear) for linear in linears):
        raise PackingError("some of its layers are of whole numbers, and some are not")
    weight, bias = joined([weight_and_bias(linear) for linear in linears], layers.order)
    if not uses_dot(kernels, weight.dtype):
        return pack(*linears, order=layers.order)
    whole = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    whole.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        whole.bias = nn.Parameter(bias, requires_grad=False)
    return NativeLinear(whole, kernels)
