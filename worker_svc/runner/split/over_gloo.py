"""Collectives over torch's own group for CPUs: by TCP, also where ranks have no memory in common."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.distributed import ReduceOp

from worker_svc.runner.split.over_torch import TorchCommunicator

LOOK_S = 20e-6


class GlooCommunicator(TorchCommunicator):
    """The collectives of a `ProcessGroupGloo`."""

    def __init__(self, rank: int, size: int, num_here: int, group: Any) -> None:
        super().__init__(rank, size, num_here, group)
        self._has_ended = False

    def end(self) -> None:
        """Lets whoever waits for others wait no longer: one that was stopped closes nothing that gloo sees."""
        self._has_ended = True

    def _least(self, number: int) -> int:
        value = torch.tensor([number], dtype=torch.int64)
        self._reduce(value, ReduceOp.MIN)
        return int(value)

    def _wait(self, work: Any) -> None:
        while not work.is_completed():
            if self._has_ended:
                raise RuntimeError("the group of ranks has ended")
            time.sleep(LOOK_S)
        work.wait()
