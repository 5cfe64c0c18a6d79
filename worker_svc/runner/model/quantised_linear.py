"""A linear layer as a quantised checkpoint defines it: whole numbers with scales."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from worker_svc.weights.quantised import QuantisedMatrix
from worker_svc.weights.rounding import round_rows
from worker_svc.weights.served import served_form


class QuantisedLinear(nn.Module):
    """Stands for `nn.Linear` until its weights are packed; its forward is the definition, and slow.

    Rows are rounded to 16 bits, too, in pieces of 32 inputs: products are of whole numbers.
    """

    bias: torch.Tensor | None

    def __init__(self, matrix: QuantisedMatrix, bias: torch.Tensor | None, dtype: torch.dtype) -> None:
        """`bias` is `[outputs]`; `dtype` is that of the model."""
        super().__init__()
        self.out_features, self.in_features = matrix.shape
        self.matrix = matrix
        self.bias = None if bias is None else bias.detach()
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[..., in]` to `[..., out]`."""
        bias = None if self.bias is None else self.bias.float()
        return F.linear(round_rows(x), self.matrix.dequantise(), bias).to(x.dtype)

    @property
    def weight(self) -> torch.Tensor:
        """`[out, in]`, made anew in the dtype of the model."""
        return served_form("", self.matrix, self.dtype)
