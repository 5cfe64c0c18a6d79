"""A linear layer as a quantised checkpoint defines it: whole numbers with scales."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn

from worker_svc.weights.held import HeldMatrix
from worker_svc.weights.quantised import QuantisedMatrix
from worker_svc.weights.rounding import round_rows
from worker_svc.weights.served import in_chunks


class QuantisedLinear(nn.Module):
    """Stands for `nn.Linear` until its weights are packed; its forward is the definition, and slow.

    Rows are rounded to 16 bits, too, in pieces of 32 inputs: products are of whole numbers.
    """

    bias: torch.Tensor | None

    def __init__(self, held: HeldMatrix, bias: torch.Tensor | None, dtype: torch.dtype) -> None:
        """`bias` is `[outputs]`; `dtype` is that of the model."""
        super().__init__()
        self.out_features, self.in_features = held.shape
        self._held: HeldMatrix | None = held
        self.bias = None if bias is None else bias.detach()
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[..., in]` to `[..., out]`."""
        held, rows = self.held, round_rows(x).flatten(0, -2)
        # In chunks: a head in float32 may be larger than the whole model in 4 bits.
        columns = in_chunks(
            (self.out_features, len(rows)),
            torch.float32,
            lambda chunk: held.rows(chunk).dequantise() @ rows.T,
            width=self.in_features,
        )
        out = columns.T if self.bias is None else columns.T + self.bias.float()
        return out.to(x.dtype).contiguous().view(*x.shape[:-1], self.out_features)

    @property
    def weight(self) -> torch.Tensor:
        """`[out, in]`, made anew in the dtype of the model."""
        return in_chunks(self.held.shape, self.dtype, lambda chunk: self.held.rows(chunk).dequantise())

    @property
    def held(self) -> HeldMatrix:
        """The weight, which has not been released."""
        assert self._held is not None, "the weight was packed, and is not here any more"
        return self._held

    @property
    def matrix(self) -> QuantisedMatrix:
        """The weight, made anew."""
        return self.held.rows()

    @property
    def is_released(self) -> bool:
        """True once the weight is elsewhere: the layer cannot be called any more."""
        return self._held is None

    def release(self) -> None:
        """Gives the weight's memory back: it was packed."""
        self._held = None

    def take_back(self, held: HeldMatrix) -> None:
        """Gives the layer its weight again: it was not to be packed after all."""
        self._held = held


@contextmanager
def skipping_products(model: nn.Module) -> Iterator[None]:
    """Lets the model run without reading the weights of its linear layers: they give zeros."""

    def zeros(linear: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return x.new_zeros(*x.shape[:-1], int(linear.out_features))  # type: ignore[arg-type]

    linears = [module for module in model.modules() if type(module) in (nn.Linear, QuantisedLinear)]
    for linear in linears:
        linear.forward = partial(zeros, linear)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for linear in linears:
            del linear.forward
