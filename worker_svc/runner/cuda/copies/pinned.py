"""Memory of the host that a GPU reads and writes by itself."""

from __future__ import annotations

import mmap
import weakref
from typing import Any

import numpy as np
import torch

from worker_svc.runner.errors import ModelLoadError

WANTED = "num_host_blocks and hand_off need memory of the host that the GPU reaches"
"""What is not served without pinned memory."""


def host_empty(shape: tuple[int, ...], dtype: torch.dtype, *, is_pinned: bool) -> torch.Tensor:
    """An uninitialised tensor on the host. is_pinned: GPUs can read and write it; its size is rounded up to pages,
    where torch's own pinned memory would take the next power of two. ModelLoadError if the system refuses."""
    num_bytes = torch.Size(shape).numel() * dtype.itemsize
    if not is_pinned or not num_bytes:
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(_pinned(num_bytes)).view(dtype).view(shape)


def _pinned(num_bytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """So many bytes, from the beginning of a page, pinned for as long as the array is there."""
    try:
        memory = mmap.mmap(-1, num_bytes)
    except OSError as error:
        raise ModelLoadError(f"{WANTED}: {num_bytes} bytes could not be allocated: {error}.") from error
    content = np.frombuffer(memory, np.uint8)
    cudart: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address = content.ctypes.data
    status = int(cudart.cudaHostRegister(address, num_bytes, 0))
    if status:
        raise ModelLoadError(f"{WANTED}: {num_bytes} bytes could not be pinned: error {status} of CUDA.")
    # A process that ends leaves this to the driver.
    weakref.finalize(content, cudart.cudaHostUnregister, address).atexit = False
    return content
