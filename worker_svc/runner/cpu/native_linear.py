"""Linear layers in bfloat16 by our own kernel: at the speed of the memory for few rows, of the arithmetic for many."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from worker_svc.runner.cpu.huge_pages import allocate
from worker_svc.runner.cpu.native.kernels import TILE, Kernels
from worker_svc.runner.cpu.native.structs import PackedCall
from worker_svc.runner.cpu.packed_linear import (
    TOLERANCES,
    PackingError,
    join_biases,
    probe_rows,
    relative_error,
    weight_and_bias,
)
from worker_svc.runner.cpu.tiled_rows import TiledRows
from worker_svc.weights.heap import heap_trim


def uses_dot(kernels: Kernels, dtype: torch.dtype) -> bool:
    """Our own products serve bfloat16: a row's result does not depend on how many others there are, where oneDNN has
    other routines for few rows than for many on matrix units (AMX)."""
    return kernels.has_dot and dtype == torch.bfloat16


class PackedWeight:
    """Weights `[outputs, inputs]` in the order in which the kernel reads them, and a bias `[outputs]`."""

    def __init__(
        self,
        weight: torch.Tensor | Sequence[torch.Tensor],
        bias: torch.Tensor | None = None,
        order: torch.Tensor | None = None,
    ) -> None:
        """`weight` may be several ones, whose outputs are then side by side, or in that `order`, int64 `[outputs]`;
        `bias` is in it already."""
        parts = [weight] if isinstance(weight, torch.Tensor) else weight
        for part in parts:
            check_packs(part)
        outputs, inputs = sum(map(len, parts)), parts[0].shape[1]
        num_tiles = -(-outputs // TILE)
        self.packed = allocate((num_tiles, inputs // 2, TILE, 2), torch.bfloat16)
        TiledRows(parts, order).pack(
            slice(0, num_tiles), self.packed.view(torch.uint8).view(num_tiles, 1, -1)
        )
        self.bias: torch.Tensor | None = None
        if bias is not None:
            self.bias = torch.zeros(num_tiles * TILE)
            self.bias[:outputs] = bias
        heap_trim.add(self.packed.nbytes)
        self.call = PackedCall(
            self.packed.data_ptr(),
            None if self.bias is None else self.bias.data_ptr(),
            inputs,
            outputs,
            inputs,
            16,
        )


def check_packs(weight: torch.Tensor) -> None:
    """PackingError for a weight `[outputs, inputs]` that the kernel cannot read."""
    if weight.dtype != torch.bfloat16 or weight.shape[1] % 2:
        raise PackingError("the kernel takes bfloat16 and an even number of inputs")


class NativeLinear(nn.Module):
    """`x @ weight.T + bias` for `x` `[..., in]` bfloat16. A row's result does not depend on the other rows."""

    def __init__(
        self, linears: Sequence[nn.Module], kernels: Kernels, order: torch.Tensor | None = None
    ) -> None:
        """Gives the outputs of `linears`, side by side, or in that `order`, int64 `[outputs]`. PackingError if it
        cannot."""
        super().__init__()
        pairs = [weight_and_bias(linear) for linear in linears]
        weights = [weight for weight, _ in pairs]
        bias = join_biases(weights, [bias for _, bias in pairs])
        self._kernels = kernels
        self._weight = PackedWeight(weights, bias if bias is None or order is None else bias[order], order)
        self.out_features, self.in_features = self._weight.call.outputs, self._weight.call.inputs
        probe = probe_rows(self.in_features, weights[0].dtype)
        expected = torch.cat([torch.nn.functional.linear(probe, *pair) for pair in pairs], dim=-1)
        if order is not None:
            expected = expected[:, order]
        if not relative_error(self(probe), expected) <= TOLERANCES[probe.dtype]:
            raise PackingError("packed weights give other results")

    @property
    def weight_bytes(self) -> int:
        """Bytes that a product reads of the weight."""
        return self._weight.packed.nbytes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[..., in]` to `[..., out]`."""
        return self._kernels.linear(x.contiguous(), self._weight.call)
