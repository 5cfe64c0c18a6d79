"""Memory on huge pages: large tensors that are read in pieces all over, or from end to end, miss fewer translations."""

from __future__ import annotations

import mmap

import torch

from worker_svc.transfer.shared_memory import SharedMemory

PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
"""Memory of this process alone. What others may share, as `mmap` takes it by itself, has no huge pages on usual
systems."""
SMALLEST_BYTES = 4 << 20
"""Below two huge pages there is nothing to gain."""


def allocate(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    shared: SharedMemory | None = None,
) -> torch.Tensor:
    """An uninitialised tensor; on the CPU and if it is large, on huge pages where the system has them. shared: memory
    that it is a part of, on the CPU."""
    num_bytes = torch.Size(shape).numel() * dtype.itemsize
    if shared is not None and num_bytes:
        return torch.from_numpy(shared.take(num_bytes)).view(dtype).view(shape)
    if torch.device(device).type != "cpu" or num_bytes < SMALLEST_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(shape, dtype=dtype, device=device)
    try:
        memory = mmap.mmap(-1, num_bytes, flags=PRIVATE)
    except OSError as error:  # as torch says it
        raise RuntimeError(f"{num_bytes} bytes could not be allocated: {error}") from error
    memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
