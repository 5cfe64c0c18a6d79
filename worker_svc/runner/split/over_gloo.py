"""Collectives over torch's own group for CPUs: by TCP, also where ranks have no memory in common."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed import AllreduceOptions, GatherOptions, ReduceOp

from worker_svc.runner.split.communicator import Communicator

LOOK_S = 20e-6


class GlooCommunicator(Communicator):
    """The collectives of a `ProcessGroupGloo`."""

    def __init__(self, rank: int, size: int, num_here: int, group: Any) -> None:
        """group: torch's, whose stubs lack its methods."""
        super().__init__(rank, size, num_here)
        self._group = group
        self._has_ended = False

    def end(self) -> None:
        """Lets whoever waits for others wait no longer: one that was stopped closes nothing that gloo sees."""
        self._has_ended = True

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

    def _least(self, number: int) -> int:
        value = torch.tensor([number], dtype=torch.int64)
        self._reduce(value, ReduceOp.MIN)
        return int(value)

    def _reduce(self, values: torch.Tensor, operation: Any) -> None:
        options = AllreduceOptions()
        options.reduceOp = operation
        self._wait(self._group.allreduce([values], options))

    def _wait(self, work: Any) -> None:
        while not work.is_completed():
            if self._has_ended:
                raise RuntimeError("the group of ranks has ended")
            time.sleep(LOOK_S)
        work.wait()
