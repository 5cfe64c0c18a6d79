"""A matrix kept as whole numbers with scales: what most quantised checkpoints have, by whatever name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True)
class QuantisedMatrix:
    """`[outputs, inputs]`; each number is `code * scale`, and its group's offset where there are offsets."""

    codes: torch.Tensor
    """int8 `[outputs, inputs]`: -8 to 7 of 4 bits, else -128 to 127."""
    scales: torch.Tensor
    """float32 `[outputs, inputs / group_size]`."""
    offsets: torch.Tensor | None
    """float32, shaped as the scales. None: 0 everywhere."""
    bits: int
    """4 or 8: how many a kernel has to keep."""
    group_size: int
    """Inputs that share a scale, one behind another."""

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs, inputs."""
        outputs, inputs = self.codes.shape
        return outputs, inputs

    def with_rows(self, choose: Callable[[torch.Tensor], torch.Tensor]) -> QuantisedMatrix:
        """The matrix whose rows are those that `choose` makes of the rows of a tensor."""
        offsets = None if self.offsets is None else choose(self.offsets)
        return replace(self, codes=choose(self.codes), scales=choose(self.scales), offsets=offsets)

    def dequantise(self) -> torch.Tensor:
        """float32 `[outputs, inputs]`."""
        outputs, inputs = self.shape
        numbers = self.codes.view(outputs, -1, self.group_size).float() * self.scales[..., None]
        if self.offsets is not None:
            numbers += self.offsets[..., None]
        return numbers.view(outputs, inputs)
