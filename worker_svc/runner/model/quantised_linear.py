"""A linear layer as a quantised checkpoint defines it: whole numbers with scales."""

from __future__ import annotations

import torch
from torch import nn

from worker_svc.weights.quantised import QuantisedMatrix
from worker_svc.weights.rounding import round_rows
from worker_svc.weights.served import in_chunks, served_form


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
        rows = round_rows(x).flatten(0, -2)
        # In chunks: a head in float32 may be larger than the whole model in 4 bits.
        columns = in_chunks(
            (self.out_features, len(rows)),
            torch.float32,
            lambda chunk: self.matrix.with_rows(lambda values: values[chunk]).dequantise() @ rows.T,
            width=self.in_features,
        )
        out = columns.T if self.bias is None else columns.T + self.bias.float()
        return out.to(x.dtype).view(*x.shape[:-1], self.out_features)

    @property
    def weight(self) -> torch.Tensor:
        """`[out, in]`, made anew in the dtype of the model."""
        return served_form(self.matrix, self.dtype)
