"""How ranks find each other for their collectives."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore
from torch.distributed import ProcessGroupGloo

from signalbox.errors import StartupError
from signalbox.links.addresses import is_loopback
from worker_svc.config import WorkerSettings
from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.split.communicator import Communicator, LoneCommunicator
from worker_svc.runner.split.links import StageLink
from worker_svc.runner.split.over_gloo import GlooCommunicator
from worker_svc.runner.split.over_memory import MemoryCommunicator
from worker_svc.runner.split.over_nccl import NcclCommunicator, make_nccl_group
from worker_svc.runner.split.split import Split

MEET_S = 120.0
"""How long ranks wait for each other when they start."""
COLLECTIVE_S = 1800.0
"""Longer than any step: what hangs is found out by other means (RK5)."""


@dataclass(frozen=True)
class Parts:
    """Into how many parts a model is divided: its layers among stages, each layer among the ranks of its stage."""

    num_ranks: int
    """Ranks of each stage."""
    num_stages: int = 1
    by_expert: bool = False
    """Whether experts are whole, and each rank of a stage has some."""
    on_gpus: bool = False
    """Whether each rank has a GPU of its own."""

    @classmethod
    def of(cls, settings: WorkerSettings) -> Parts:
        """What these settings say."""
        return cls(
            settings.tensor_parallel,
            settings.pipeline_parallel,
            settings.expert_parallel,
            settings.device == "cuda",
        )

    @property
    def total(self) -> int:
        """Ranks of all stages."""
        return self.num_ranks * self.num_stages


def meet(rank: int, parts: Parts, place: str, memory_fd: int | None) -> Split:
    """Joins the ranks of this host: those of a stage through the memory of a descriptor, or without one over gloo, by
    a file in the directory `place`, which nobody else can read. RuntimeError when others do not come."""
    within = None
    if memory_fd is not None:
        kernels = native_kernels()
        if kernels is None:
            raise RuntimeError("the native kernels, through which ranks meet, are not available at this one")
        within = MemoryCommunicator(rank % parts.num_ranks, parts.num_ranks, memory_fd, kernels)
        if parts.num_stages == 1:
            return Split(within, by_expert=parts.by_expert)
    store = FileStore(str(Path(place) / "ranks"), parts.total)
    store.set_timeout(timedelta(seconds=MEET_S))
    return meet_over_gloo(rank, parts, parts.total, rank, store, "127.0.0.1", within)


def open_store(host: str, num_ranks: int, port: int = 0) -> TCPStore:
    """Where ranks of several hosts find each other: at rank 0, which opens it at any port, or from another one, which
    knows the port. RuntimeError when it is not reached."""
    timeout = timedelta(seconds=MEET_S)
    return TCPStore(
        host.strip("[]"), port, num_ranks, is_master=not port, timeout=timeout, wait_for_workers=False
    )


def meet_over_gloo(
    rank: int,
    parts: Parts,
    num_here: int,
    number_here: int,
    store: Store,
    host: str,
    within: Communicator | None = None,
) -> Split:
    """Joins a group over TCP. `host` is where rank 0 is: connections of one host stay on it, whatever its name leads
    to. `num_here`: ranks of this host; `number_here`: ours among them; `within`: of our stage, if they have met
    already. StartupError where a GPU is missing; RuntimeError when others do not come."""
    if is_loopback(f"{host}:0"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    group = _gloo(store, rank, parts.total)
    everyone = GlooCommunicator(rank, parts.total, num_here, group)
    if parts.on_gpus:
        return _on_gpus(parts, number_here, store, everyone)
    if parts.num_stages == 1:
        return Split(everyone, by_expert=parts.by_expert)
    stage, part = divmod(rank, parts.num_ranks)
    if parts.num_ranks == 1:
        within = LoneCommunicator()
    elif within is None:
        of_stage = _gloo(PrefixStore(f"stage {stage}", store), part, parts.num_ranks)
        within = GlooCommunicator(part, parts.num_ranks, min(num_here, parts.num_ranks), of_stage)
    link = StageLink(
        group,
        rank - parts.num_ranks if stage else None,
        rank + parts.num_ranks if stage < parts.num_stages - 1 else None,
    )
    return Split(within, everyone, stage, parts.num_stages, link, by_expert=parts.by_expert)


def check_gpus(num_needed: int) -> None:
    """StartupError unless this host has so many."""
    found = torch.cuda.device_count()
    if found < num_needed:
        raise StartupError(
            f"--device cuda: each rank has a GPU of its own, this host needs {num_needed}, and torch sees {found}"
        )


def _on_gpus(parts: Parts, number_here: int, store: Store, host: Communicator) -> Split:
    """Joins a group of one stage, which has met on the hosts, over NCCL."""
    assert parts.num_stages == 1, "settings refuse stages on GPUs"
    check_gpus(number_here + 1)
    # Of this thread, which loads and makes calls; rank 0's is any thread's.
    torch.cuda.set_device(number_here)
    device = torch.device("cuda", number_here)
    group = make_nccl_group(PrefixStore("nccl", store), host.rank, host.size, timedelta(seconds=COLLECTIVE_S))
    return Split(NcclCommunicator(group, device, host), by_expert=parts.by_expert, device=str(device))


def _gloo(store: Store, rank: int, size: int) -> ProcessGroupGloo:
    return ProcessGroupGloo(store, rank, size, timedelta(seconds=COLLECTIVE_S))
