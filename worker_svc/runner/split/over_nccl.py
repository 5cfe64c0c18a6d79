"""Collectives among GPUs, by NCCL: a rank has one of its own, and what it gives never comes to the host."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Store

from worker_svc.runner.split.communicator import Communicator
from worker_svc.runner.split.over_torch import TorchCommunicator


def make_nccl_group(store: Store, rank: int, size: int, timeout: timedelta) -> Any:
    """torch's group of ranks that find each other by `store`. It connects with the first collective."""
    # Imported here: builds of torch for CPUs have none.
    from torch.distributed import ProcessGroupNCCL  # noqa: PLC0415

    options = ProcessGroupNCCL.Options()
    options._timeout = timeout
    return ProcessGroupNCCL(store, rank, size, options)


class NcclCommunicator(TorchCommunicator):
    """The collectives of a `ProcessGroupNCCL`. They are launched, and the stream waits for them, not the host:
    `seconds` is the time of launching alone. What is on the host goes by a communicator of the same ranks there."""

    def __init__(self, group: Any, device: torch.device, host: Communicator) -> None:
        """group: torch's, of tensors on `device`, which has its number."""
        super().__init__(host.rank, host.size, 1, group)  # no other rank takes of its memory
        self._device, self._host = device, host

    def end(self) -> None:
        """Lets whoever waits for others wait no longer: kernels that wait on the device are given up."""
        self._host.end()
        self._group.abort()

    def _sum(self, values: torch.Tensor) -> None:
        if values.device == self._device:
            super()._sum(values)
        else:
            self._host.sum(values)

    def _least(self, number: int) -> int:
        return self._host.least(number)

    def _wait(self, work: Any) -> None:
        work.wait()
