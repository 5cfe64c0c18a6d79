"""Copies a step's columns to the device, and its tokens back, without the host waiting for either."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

ALIGNMENT = 16


def upload(columns: list[NDArray[Any]], device: torch.device) -> list[torch.Tensor]:
    """The columns as tensors of the same shapes and dtypes on `device`. Later writes to `columns` do not show."""
    starts, size = [], 0
    for column in columns:
        starts.append(size)
        size += -(-column.nbytes // ALIGNMENT) * ALIGNMENT
    packed = np.empty(max(size, ALIGNMENT), np.uint8)  # views of nothing have no strides
    for start, column in zip(starts, columns, strict=True):
        packed[start : start + column.nbytes] = np.ascontiguousarray(column).reshape(-1).view(np.uint8)
    buffer = torch.from_numpy(packed)
    if device.type == "cuda":  # pinned memory is kept by torch until the copy is done
        buffer = buffer.pin_memory().to(device, non_blocking=True)
    return [_view(buffer, start, column) for start, column in zip(starts, columns, strict=True)]


def _view(buffer: torch.Tensor, start: int, column: NDArray[Any]) -> torch.Tensor:
    dtype = torch.from_numpy(np.empty(0, column.dtype)).dtype
    return buffer[start : start + column.nbytes].view(dtype).view(column.shape)


class HostCopy:
    """Tokens `[N]` on their way to the host; nobody waits until `wait`."""

    def __init__(self, tokens: torch.Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        if tokens.is_cuda:
            self._tokens = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
            self._tokens.copy_(tokens, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()
        else:
            self._tokens = tokens.clone()

    @property
    def is_done(self) -> bool:
        """Whether the tokens are there, so that `wait` does not wait."""
        return self._event is None or bool(self._event.query())  # type: ignore[no-untyped-call]

    def wait(self) -> NDArray[np.int32]:
        """The tokens `[N]`, as soon as they are on the host."""
        if self._event is not None:
            self._event.synchronize()
        return self._tokens.numpy().astype(np.int32)
