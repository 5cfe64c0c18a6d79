"""Linear layers whose weights stay whole numbers of 4 or 8 bits."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.runner.cpu.packed_codes import PackedCodes, check_fits
from worker_svc.runner.cpu.packed_linear import TOLERANCES, PackingError, probe_rows, relative_error
from worker_svc.runner.model.quantised_linear import QuantisedLinear
from worker_svc.weights.held import hold
from worker_svc.weights.held_rows import HeldRows, are_alike
from worker_svc.weights.quantised import QuantisedMatrix


class KeptLinear(nn.Module):
    """The product by our kernel with packed codes. A row's result does not depend on the other rows."""

    def __init__(
        self, linears: Sequence[QuantisedLinear], kernels: Kernels, order: torch.Tensor | None = None
    ) -> None:
        """Gives the outputs of `linears`, side by side, or in that `order`, int64 `[outputs]`, and releases these.
        PackingError if it cannot."""
        super().__init__()
        self.in_features = linears[0].in_features
        self.out_features = sum(linear.out_features for linear in linears)
        self._kernels = kernels
        probe = probe_rows(self.in_features, linears[0].dtype)
        expected = torch.cat([linear(probe) for linear in linears], dim=-1)
        if order is not None:
            expected = expected[:, order]
        self._weight = pack_kept(linears, order)
        if not relative_error(self(probe), expected) <= TOLERANCES[linears[0].dtype]:
            unpack_kept(self._weight, linears, order)
            raise PackingError("packed codes give other results")

    @property
    def weight_bytes(self) -> int:
        """Bytes that a product reads of the weight."""
        return self._weight.packed.nbytes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[..., in]` to `[..., out]`."""
        return self._kernels.linear_quantised(x.contiguous(), self._weight.call)


def quantised_only(linears: Sequence[nn.Module]) -> list[QuantisedLinear] | None:
    """Quantised layers as such; None if one of `linears` is none."""
    kept = [linear for linear in linears if isinstance(linear, QuantisedLinear)]
    return kept if len(kept) == len(linears) else None


def unpack_kept(
    packed: PackedCodes, linears: Sequence[QuantisedLinear], order: torch.Tensor | None = None
) -> None:
    """Gives layers that were packed side by side, or in that `order`, their weights back."""
    matrix = packed.matrix()
    if order is not None:
        matrix = matrix.with_rows(lambda rows: rows[torch.argsort(order)])
    start = 0
    for linear in linears:
        linear.take_back(hold(matrix.rows(slice(start, start + linear.out_features))))
        start += linear.out_features


def pack_kept(linears: Sequence[QuantisedLinear], order: torch.Tensor | None = None) -> PackedCodes:
    """The outputs of all side by side, or in that `order`, int64 `[outputs]`; the layers are released. PackingError if
    the kernel could not read that; then they are as they were."""
    bias = join_biases(linears)
    held = [linear.held for linear in linears]
    if are_alike(held):
        joined = HeldRows(held, order)
    else:
        mixed = join_matrices([linear.matrix for linear in linears])
        joined = HeldRows([hold(mixed)], order)
    del held
    check_fits(joined)
    for linear in linears:
        linear.release()
    return PackedCodes(joined, bias if bias is None or order is None else bias[order])


def join_matrices(matrices: Sequence[QuantisedMatrix]) -> QuantisedMatrix:
    """Their outputs side by side, with the very numbers that they have: in the most bits of any, and in groups into
    which all of theirs can be cut. PackingError if the kernel could not read that."""
    if len(matrices) == 1:
        return matrices[0]
    group = math.gcd(*(matrix.group_size for matrix in matrices))
    offsets = None
    if any(matrix.offsets is not None for matrix in matrices):
        offsets = torch.cat([_cut(_offsets(matrix), matrix.group_size // group) for matrix in matrices])
    kinds = {(matrix.bits, matrix.is_e2m1) for matrix in matrices}
    is_e2m1 = kinds == {(4, True)}
    joined = QuantisedMatrix(
        codes=torch.cat([matrix.codes if is_e2m1 else matrix.whole for matrix in matrices]),
        scales=torch.cat([_cut(matrix.scales, matrix.group_size // group) for matrix in matrices]),
        offsets=offsets,
        bits=4 if kinds <= {(4, False)} or is_e2m1 else 8,
        group_size=group,
        is_e2m1=is_e2m1,
    )
    check_fits(joined)
    return joined


def join_biases(linears: Sequence[QuantisedLinear]) -> torch.Tensor | None:
    """Biases side by side, zeros for those that are missing; None if all are."""
    if all(linear.bias is None for linear in linears):
        return None
    return torch.cat(
        [
            torch.zeros(linear.out_features) if linear.bias is None else linear.bias.float()
            for linear in linears
        ]
    )


def _offsets(matrix: QuantisedMatrix) -> torch.Tensor:
    return torch.zeros_like(matrix.scales) if matrix.offsets is None else matrix.offsets


def _cut(values: torch.Tensor, parts: int) -> torch.Tensor:
    return values if parts == 1 else values.repeat_interleave(parts, dim=1)
