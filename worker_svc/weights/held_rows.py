"""Held matrices as one: their rows one behind the other, or in an order of their own."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from worker_svc.weights.held import HeldMatrix


class HeldRows:
    """The rows of matrices that are kept alike. Nothing is copied but scales and offsets."""

    def __init__(self, parts: Sequence[HeldMatrix], order: torch.Tensor | None = None) -> None:
        """`order`: int64 `[outputs]`, which row comes where."""
        first = parts[0]
        assert are_alike(parts)
        self.parts, self.order = parts, order
        self.bits, self.group_size, self.is_e2m1 = first.bits, first.group_size, first.is_e2m1
        self.shape = sum(len(part.codes) for part in parts), first.shape[1]
        """Outputs, inputs."""
        self.scales = self._ordered([part.scales for part in parts])
        """`[outputs, groups]`"""
        offsets = [part.offsets for part in parts if part.offsets is not None]
        self.offsets = self._ordered(offsets) if offsets else None
        """As the scales; None: 0 everywhere."""

    def give_up(self, chunk: slice) -> None:
        """Gives the memory of these rows back, whole pages of it, where they lie together: nobody wants them any
        more."""
        if len(self.parts) == 1 and self.order is None:
            self.parts[0].give_up(chunk)

    def _ordered(self, values: list[torch.Tensor]) -> torch.Tensor:
        joined = values[0] if len(values) == 1 else torch.cat(values)
        return joined if self.order is None else joined[self.order]


def are_alike(matrices: Sequence[HeldMatrix]) -> bool:
    """True if they are kept alike."""
    return len({(each.form, each.codes.dtype, each.is_e2m1, each.offsets is None) for each in matrices}) == 1
