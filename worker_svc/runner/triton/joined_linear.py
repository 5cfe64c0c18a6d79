"""Linear layers of the same input as one product."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from worker_svc.runner.cpu.packed_linear import joined, weight_and_bias


class JoinedLinear(nn.Module):
    """Linear layers of the same input, side by side in one product."""

    def __init__(self, *linears: nn.Module, order: torch.Tensor | None = None) -> None:
        """Their outputs come in that `order`, int64 `[outputs]`, if there is one."""
        super().__init__()
        pairs = [weight_and_bias(linear) for linear in linears]
        self._weight, self._bias = joined(pairs, None if order is None else order.to(pairs[0][0].device))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[..., in]` to `[..., out]`."""
        return F.linear(x, self._weight, self._bias)
