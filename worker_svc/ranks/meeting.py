"""How ranks find each other for their collectives."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from torch._C._distributed_c10d import FileStore, Store, TCPStore
from torch.distributed import ProcessGroupGloo

from signalbox.links.addresses import is_loopback
from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.split.communicator import Communicator
from worker_svc.runner.split.over_gloo import GlooCommunicator
from worker_svc.runner.split.over_memory import MemoryCommunicator

MEET_S = 120.0
"""How long ranks wait for each other when they start."""
COLLECTIVE_S = 1800.0
"""Longer than any step: what hangs is found out by other means (RK5)."""


def meet(rank: int, num_ranks: int, place: str, memory_fd: int | None) -> Communicator:
    """Joins the ranks of this host: through the memory of a descriptor, or without one over gloo, by a file in the
    directory `place`, which nobody else can read. RuntimeError when others do not come."""
    if memory_fd is not None:
        kernels = native_kernels()
        if kernels is None:
            raise RuntimeError("the native kernels, through which ranks meet, are not available at this one")
        return MemoryCommunicator(rank, num_ranks, memory_fd, kernels)
    store = FileStore(str(Path(place) / "ranks"), num_ranks)
    store.set_timeout(timedelta(seconds=MEET_S))
    return meet_over_gloo(rank, num_ranks, num_ranks, store, "127.0.0.1")


def open_store(host: str, num_ranks: int, port: int = 0) -> TCPStore:
    """Where ranks of several hosts find each other: at rank 0, which opens it at any port, or from another one, which
    knows the port. RuntimeError when it is not reached."""
    timeout = timedelta(seconds=MEET_S)
    return TCPStore(
        host.strip("[]"), port, num_ranks, is_master=not port, timeout=timeout, wait_for_workers=False
    )


def meet_over_gloo(rank: int, num_ranks: int, num_here: int, store: Store, host: str) -> Communicator:
    """Joins a group over TCP. `host` is where rank 0 is: connections of one host stay on it, whatever its name leads
    to. RuntimeError when others do not come."""
    if is_loopback(f"{host}:0"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    group = ProcessGroupGloo(store, rank, num_ranks, timedelta(seconds=COLLECTIVE_S))
    return GlooCommunicator(rank, num_ranks, num_here, group)
