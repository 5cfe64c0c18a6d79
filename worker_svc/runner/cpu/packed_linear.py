"""Linear layers on the CPU with weights that oneDNN reordered once, at load: in bfloat16 1.1 to 2.7 times as fast."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from transformers.pytorch_utils import Conv1D

from worker_svc.runner.cpu.flags import cpu_flags
from worker_svc.runner.model.quantised_linear import QuantisedLinear
from worker_svc.weights.tensor_file import forget_mapped

ROWS_HINT = 8
"""Rows for which oneDNN chooses the order of the weights; more and fewer are allowed."""
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 2e-2}
"""Root mean square of the difference to the layer replaced, in standard deviations of its output."""


class PackingError(Exception):
    """This build of torch, or this layer, cannot use reordered weights."""


class PackedLinear(nn.Module):
    """`x @ weight.T + bias` for `x` `[..., in]`; `weight` `[out, in]` itself is not kept.

    A row's result does not depend on the other rows: where oneDNN has another routine for few rows than for many, rows
    are made up. In float32 that is a single row; on matrix units (AMX) fewer than 48 of bfloat16.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self._bias = None if bias is None else bias.detach()
        self._least_rows = _least_rows(weight.dtype)
        try:
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), ROWS_HINT)
            self.forward(weight.new_zeros(1, self.in_features))
        except (AttributeError, RuntimeError) as error:
            raise PackingError(str(error).partition("\n")[0]) from error

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[..., in]` to `[..., out]`."""
        num_rows = x.numel() // self.in_features
        if num_rows >= self._least_rows or not num_rows:
            return self._product(x)
        padded = x.new_zeros(self._least_rows, self.in_features)
        padded[:num_rows] = x.reshape(num_rows, self.in_features)
        return self._product(padded)[:num_rows].view(*x.shape[:-1], self.out_features)

    def _product(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")  # type: ignore[no-any-return]


def _least_rows(dtype: torch.dtype) -> int:
    """Rows from which on oneDNN takes the routine that it takes for any larger number; found by trying."""
    if dtype == torch.float32:
        return 2
    return 64 if dtype == torch.bfloat16 and "amx_bf16" in cpu_flags() else 1


def pack(*linears: nn.Module, order: torch.Tensor | None = None) -> PackedLinear:
    """One layer that gives the outputs of `linears` side by side, or in that `order`, int64 `[outputs]`. PackingError
    if it does not give the same."""
    pairs = [weight_and_bias(linear) for linear in linears]
    weight, bias = joined(pairs, order)
    packed = PackedLinear(weight, bias)
    probe = probe_rows(weight.shape[1], weight.dtype)
    expected = torch.cat([F.linear(probe, w, b) for w, b in pairs], dim=-1)
    if order is not None:
        expected = expected[:, order]
    if not relative_error(packed(probe), expected) <= TOLERANCES[weight.dtype]:
        raise PackingError("reordered weights give other results")
    return packed


def weight_and_bias(linear: nn.Module) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weight `[out, in]` and bias of a linear layer, quantised or not, or of GPT-2's, which keeps the transpose."""
    weight, bias = linear.weight, linear.bias
    assert isinstance(weight, torch.Tensor)
    assert bias is None or isinstance(bias, torch.Tensor)
    return (weight.T if type(linear) is Conv1D else weight).detach(), bias


def release_weight(linear: nn.Module) -> None:
    """Takes its weight from a linear layer, quantised or not, that was packed: it cannot be called any more."""
    if isinstance(linear, QuantisedLinear):
        linear.release()
        return
    weight, _ = weight_and_bias(linear)
    forget_mapped(weight)
    linear.register_parameter("weight", None)


def is_released(module: nn.Module) -> bool:
    """True for a linear layer whose weight was taken."""
    if isinstance(module, QuantisedLinear):
        return module.is_released
    return type(module) in (nn.Linear, Conv1D) and module.weight is None


def joined(
    pairs: list[tuple[torch.Tensor, torch.Tensor | None]], order: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weights, and biases if there are any, side by side; their rows in that `order`, int64 `[outputs]`."""
    weights = [weight for weight, _ in pairs]
    weight = weights[0] if len(weights) == 1 else torch.cat(weights)
    bias = join_biases(weights, [bias for _, bias in pairs])
    if order is None:
        return weight, bias
    return weight[order], None if bias is None else bias[order]


def join_biases(
    weights: Sequence[torch.Tensor], biases: Sequence[torch.Tensor | None]
) -> torch.Tensor | None:
    """Biases side by side, zeros for those that are missing; None if all are."""
    if all(bias is None for bias in biases):
        return None
    return torch.cat(
        [
            weight.new_zeros(weight.shape[0]) if bias is None else bias.detach()
            for weight, bias in zip(weights, biases, strict=True)
        ]
    )


def probe_rows(width: int, dtype: torch.dtype) -> torch.Tensor:
    """[3, width] fixed random numbers."""
    generator = torch.Generator().manual_seed(width)
    return torch.randn(3, width, generator=generator).to(dtype)


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Root mean square difference in root mean squares of `expected`."""
    actual, expected = actual.detach().float(), expected.detach().float()
    difference = (actual - expected).square().mean().sqrt()
    return float(difference / expected.square().mean().sqrt().clamp_min(1e-30))
