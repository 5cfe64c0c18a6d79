"""Collectives over a process group of torch, whatever it sends by."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed import AllreduceOptions, GatherOptions, ReduceOp

from worker_svc.runner.split.communicator import Communicator


class TorchCommunicator(Communicator):
    """The collectives of a `ProcessGroupGloo`, or one that is called alike."""

    def __init__(self, rank: int, size: int, num_here: int, group: Any) -> None:
        """group: torch's, whose stubs lack its methods."""
        super().__init__(rank, size, num_here)
        self._group = group

    @abstractmethod
    def _wait(self, work: Any) -> None:
        """Has what comes next find the results of torch's `work`. RuntimeError when another rank is gone."""

    def _sum(self, values: torch.Tensor) -> None:
        self._reduce(values, ReduceOp.SUM)

    def _join(self, part: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor | None:
        padded = torch.nn.functional.pad(part, (0, max(sizes) - part.shape[-1]))
        parts = [] if self.rank else [torch.empty_like(padded) for _ in sizes]
        options: Any = GatherOptions()
        options.rootRank = 0
        self._wait(self._group.gather([parts] if parts else [], [padded], options))
        if self.rank:
            return None
        return torch.cat([each[:, :size] for each, size in zip(parts, sizes, strict=True)], -1)

    def _reduce(self, values: torch.Tensor, operation: Any) -> None:
        options = AllreduceOptions()
        options.reduceOp = operation
        self._wait(self._group.allreduce([values], options))
