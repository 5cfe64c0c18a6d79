"""How the ranks of one host find each other for their collectives."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from torch._C._distributed_c10d import FileStore
from torch.distributed import ProcessGroupGloo

from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.split.communicator import Communicator
from worker_svc.runner.split.over_gloo import GlooCommunicator
from worker_svc.runner.split.over_memory import MemoryCommunicator

MEET_S = 120.0
"""How long ranks wait for each other when they start."""
COLLECTIVE_S = 1800.0
"""Longer than any step: what hangs is found out by other means (RK5)."""


def meet(rank: int, num_ranks: int, place: str, memory_fd: int | None) -> Communicator:
    """Joins the group: through the memory of a descriptor, or without one over gloo, by a file in the directory
    `place`, which nobody else can read. RuntimeError when others do not come."""
    if memory_fd is not None:
        kernels = native_kernels()
        if kernels is None:
            raise RuntimeError("the native kernels, through which ranks meet, are not available at this one")
        return MemoryCommunicator(rank, num_ranks, memory_fd, kernels)
    # Connections stay on this host, whatever its name leads to.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = FileStore(str(Path(place) / "ranks"), num_ranks)
    store.set_timeout(timedelta(seconds=MEET_S))
    group = ProcessGroupGloo(store, rank, num_ranks, timedelta(seconds=COLLECTIVE_S))
    return GlooCommunicator(rank, num_ranks, num_ranks, group)
