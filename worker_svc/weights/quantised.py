"""A matrix kept as whole numbers with scales: what most quantised checkpoints have, by whatever name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

E2M1_DOUBLED = torch.tensor([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=torch.int8)
"""Twice the floating point numbers of 4 bits, by their codes."""


@dataclass(frozen=True)
class QuantisedMatrix:
    """`[outputs, inputs]`; each number is `whole * scale`, and its group's offset where there are offsets."""

    codes: torch.Tensor
    """int8 `[outputs, inputs]`: -8 to 7 of 4 bits, else -128 to 127; or as `is_e2m1` says."""
    scales: torch.Tensor
    """float32 `[outputs, inputs / group_size]`."""
    offsets: torch.Tensor | None
    """float32, shaped as the scales. None: 0 everywhere."""
    bits: int
    """4 or 8: how many a kernel has to keep."""
    group_size: int
    """Inputs that share a scale, one behind another."""
    is_e2m1: bool = False
    """Codes, of 4 bits, are those of E2M1 less 8: places in `E2M1_DOUBLED`, the whole numbers that scales are of."""

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs, inputs."""
        outputs, inputs = self.codes.shape
        return outputs, inputs

    def with_rows(self, choose: Callable[[torch.Tensor], torch.Tensor]) -> QuantisedMatrix:
        """The matrix whose rows are those that `choose` makes of the rows of a tensor."""
        offsets = None if self.offsets is None else choose(self.offsets)
        return replace(self, codes=choose(self.codes), scales=choose(self.scales), offsets=offsets)

    def rows(self, chunk: slice) -> QuantisedMatrix:
        """The matrix of these rows."""
        return self.with_rows(lambda rows: rows[chunk])

    @property
    def form(self) -> str:
        """Codes and groups in a word: `int4/32+` has offsets."""
        codes = "e2m1" if self.is_e2m1 else f"int{self.bits}"
        return f"{codes}/{self.group_size}{'' if self.offsets is None else '+'}"

    @property
    def whole(self) -> torch.Tensor:
        """int8 `[outputs, inputs]`: the whole numbers that codes stand for."""
        return E2M1_DOUBLED[(self.codes + 8).int()] if self.is_e2m1 else self.codes

    def dequantise(self) -> torch.Tensor:
        """float32 `[outputs, inputs]`."""
        outputs, inputs = self.shape
        numbers = self.whole.view(outputs, -1, self.group_size).float() * self.scales[..., None]
        if self.offsets is not None:
            numbers += self.offsets[..., None]
        return numbers.view(outputs, inputs)
