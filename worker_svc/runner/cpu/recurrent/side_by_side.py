"""Linear layers of the same inputs, whose outputs are wanted side by side."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from worker_svc.runner.cpu.fused import pack_layers
from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.runner.cpu.packed_linear import PackingError
from worker_svc.runner.model.quantised_linear import QuantisedLinear


class SideBySide(nn.ModuleList):
    """The outputs of each, joined behind the products."""

    def __init__(self, linears: Sequence[nn.Module], order: torch.Tensor | None) -> None:
        """order: int64 `[outputs]` the output that comes where; None: as they are."""
        super().__init__(linears)
        self.order = order

    @property
    def out_features(self) -> int:
        """Of all together."""
        return sum(int(linear.out_features) for linear in self)  # type: ignore[arg-type, misc]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[..., in]` to `[..., outputs]`."""
        whole = torch.cat([linear(x) for linear in self], dim=-1)
        return whole if self.order is None else whole[..., self.order].contiguous()


def one_product(layers: SideBySide, kernels: Kernels) -> nn.Module:
    """One layer in the place of `layers`, whose weights are not kept. PackingError where there is none."""
    if len({isinstance(linear, QuantisedLinear) for linear in layers}) > 1:
        raise PackingError("some of them are of whole numbers, and some are not")
    return pack_layers(kernels, *layers, order=layers.order)
