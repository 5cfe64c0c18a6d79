"""What ranks say to each other within a forward, in the same order at all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed import AllreduceOptions, GatherOptions, ReduceOp


class Communicator:
    """The collectives of a group. RuntimeError when another rank is gone."""

    def __init__(self, rank: int, size: int, num_here: int, group: Any) -> None:
        """num_here: ranks of this host, which share its memory. group: torch's process group, whose stubs lack
        its methods."""
        self.rank, self.size, self.num_here = rank, size, num_here
        self._group = group
        self.num_calls = 0
        """Collectives so far: equal at all ranks between two of them."""
        self.num_bytes = 0
        """Bytes that were given to them."""

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks, the same bits at all of them; `values` may be written."""
        values = values.contiguous()
        self._reduce(values, ReduceOp.SUM)
        return values

    def join(self, part: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        """At rank 0 the parts of all ranks side by side, `sizes` by rank of the last dimension; elsewhere zeros of that
        shape."""
        widest = max(sizes)
        padded = part
        if part.shape[-1] < widest:
            padded = torch.nn.functional.pad(part, (0, widest - part.shape[-1]))
        parts = [] if self.rank else [torch.empty_like(padded) for _ in sizes]
        options: Any = GatherOptions()
        options.rootRank = 0
        self._count(padded)
        self._group.gather([parts] if parts else [], [padded.contiguous()], options).wait()
        if self.rank:
            return part.new_zeros(()).expand(*part.shape[:-1], sum(sizes))
        return torch.cat([each[..., :size] for each, size in zip(parts, sizes, strict=True)], -1)

    def least(self, number: int) -> int:
        """The least number that any rank has."""
        value = torch.tensor([number], dtype=torch.int64)
        self._reduce(value, ReduceOp.MIN)
        return int(value)

    def agree(self, is_right: bool) -> bool:
        """True if it is right at all ranks."""
        return bool(self.least(int(is_right)))

    def _reduce(self, values: torch.Tensor, operation: Any) -> None:
        options = AllreduceOptions()
        options.reduceOp = operation
        self._count(values)
        self._group.allreduce([values], options).wait()

    def _count(self, values: torch.Tensor) -> None:
        self.num_calls += 1
        self.num_bytes += values.nbytes
