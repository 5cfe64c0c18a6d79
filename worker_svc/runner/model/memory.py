"""How much memory there is, what a model takes of it, and how large its KV cache may be."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path

import torch

from worker_svc.runner.errors import ModelLoadError

GIB = 1 << 30
CPU_MEMORY_SHARE = 0.4
"""Share of the memory free after loading that the cache takes; the rest is for activations and for other processes."""
CPU_MEMORY_CAP_BYTES = 8 * GIB
CUDA_MEMORY_SHARE = 0.85
GRAPH_BYTES = 12 << 20
"""What CUDA takes for a captured decode step beside the memory that its kernels write: at most so much on an H100, of a
step of 511 kernels, by what its driver said of a process with 27 of them."""
WORKSPACE_BYTES = 32 << 20
"""What cuBLAS takes for each stream, on an H100."""
NUM_GRAPH_STREAMS = 2
"""Streams beside that of steps: one of warm-ups, one of captures."""
CGROUP = Path("/sys/fs/cgroup")
"""A container sees its own group at the root."""


@dataclass(frozen=True)
class CacheSize:
    """What was asked for; at most one is set. None of them: a share of what is free once the model is loaded."""

    num_blocks: int | None = None
    num_bytes: int | None = None
    gpu_utilization: float | None = None
    """Share of the whole GPU's memory that model, activations and cache may take together."""

    def __post_init__(self) -> None:
        settings = {
            "num_blocks": self.num_blocks,
            "kv_cache_memory": self.num_bytes,
            "gpu_memory_utilization": self.gpu_utilization,
        }
        names = [name for name, value in settings.items() if value is not None]
        if len(names) > 1:
            raise ModelLoadError(f"{names[0]} and {names[1]} both size the KV cache: set one of them.")


def blocks_that_fit(block_bytes: int, memory_bytes: int) -> int:
    """How many blocks go into `memory_bytes`. ModelLoadError if not even one."""
    num_blocks = memory_bytes // block_bytes
    if num_blocks < 1:
        raise ModelLoadError(
            f"kv_cache_memory of {memory_bytes} bytes does not hold one block of {block_bytes} bytes."
        )
    return num_blocks


def check_weights_fit(model_dir: Path, needed: int, dtype: torch.dtype, available: int) -> None:
    """ModelLoadError if weights of `needed` bytes are larger than the memory that is `available`. `dtype` is that of
    those that are no whole numbers."""
    if needed > available:
        name = str(dtype).removeprefix("torch.")
        raise ModelLoadError(
            f"The weights of {model_dir} take {in_gib(needed)} in {name}, "
            f"but only {in_gib(available)} of memory are available."
        )


def check_cache_fits(
    num_blocks: int,
    num_host_blocks: int,
    block_bytes: int,
    device: torch.device,
    beside: int = 0,
    host_beside: int = 0,
) -> None:
    """ModelLoadError if cache and host tier are larger than what the loaded model has left. beside, host_beside: bytes
    of groups of layers that have blocks of their own, in the cache and in the host tier."""
    if device.type == "cpu":
        _check(num_blocks + num_host_blocks, block_bytes, device, beside + host_beside)
    else:
        _check(num_blocks, block_bytes, device, beside)
        _check(num_host_blocks, block_bytes, torch.device("cpu"), host_beside)


def _check(num_blocks: int, block_bytes: int, device: torch.device, beside: int = 0) -> None:
    available = available_bytes(device)
    needed = num_blocks * block_bytes + beside
    if needed > available:
        raise ModelLoadError(
            f"The KV cache of {num_blocks} blocks takes {in_gib(needed)}, but only "
            f"{in_gib(available)} of memory are available beside the model, enough for "
            f"{available * num_blocks // needed} blocks."
        )


def default_cache_bytes(device: torch.device) -> int:
    """Bytes for the KV cache when no setting says so."""
    if device.type == "cuda":
        return int(available_bytes(device) * CUDA_MEMORY_SHARE)
    return min(int(available_bytes(device) * CPU_MEMORY_SHARE), CPU_MEMORY_CAP_BYTES)


def gpu_cache_bytes(utilization: float, *, total: int, free: int, step: int, graphs: int = 0) -> int:
    """What a share of the `total` bytes leaves for the cache beside what is taken, whoever has it, what a `step` takes
    for a while, and what the `graphs` take that are captured once the cache is there.

    ModelLoadError if that is nothing.
    """
    taken, later = total - free, step + graphs
    left = int(total * utilization) - taken - later
    if left <= 0:
        raise ModelLoadError(
            f"gpu_memory_utilization of {utilization} allows {in_gib(int(total * utilization))} of {in_gib(total)}, "
            f"but {in_gib(taken)} are taken and steps take up to {in_gib(later)} more: nothing is left for the cache."
        )
    return left


def graphs_bytes(largest: int, num_graphs: int) -> int:
    """What `num_graphs` captured steps take that share their memory, where the largest takes `largest` bytes."""
    return largest + num_graphs * GRAPH_BYTES + NUM_GRAPH_STREAMS * WORKSPACE_BYTES


def give_back(device: torch.device) -> None:
    """Returns memory that torch keeps without using it to a GPU, so that what is free can be measured."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


def available_bytes(device: torch.device) -> int:
    """Memory that this process may still take on `device`."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return min(_machine_available_bytes(), cgroup_available_bytes(CGROUP))


def in_gib(num_bytes: int) -> str:
    """A size in GiB, for people to read."""
    return f"{num_bytes / GIB:.2f} GiB"


def _machine_available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise ModelLoadError("/proc/meminfo has no line MemAvailable, which says how much memory there is.")


def cgroup_available_bytes(group: Path) -> int:
    """By the files of a cgroup (v2); without a limit, more than any machine has.

    Cached files count as used there, but are given up when memory is short.
    """
    limit, used = group / "memory.max", group / "memory.current"
    if not (limit.is_file() and used.is_file()) or limit.read_text().strip() == "max":
        return 1 << 62
    return max(
        0, int(limit.read_text()) - int(used.read_text()) + _inactive_file_bytes(group / "memory.stat")
    )


def _inactive_file_bytes(stat: Path) -> int:
    lines = stat.read_text().splitlines() if stat.is_file() else []
    return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)
