"""What the disk tier needs of a runner: the bytes of blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]


@runtime_checkable
class BlockMemory(Protocol):
    """Reads and writes blocks as bytes, beside the steps: nothing that runs meanwhile writes what is read, or touches
    what is written."""

    def record_bytes(self) -> list[int]:
        """Bytes of a block of each group, in all of its layers, the spine's first."""

    def reads_aside(self, group: int, blocks: I32) -> Callable[[], U8]:
        """Returns what reads `blocks`, `[n, bytes]`, in whatever thread calls it, behind all that was given to the
        runner before this call."""

    def writes_aside(self, group: int, blocks: I32) -> Callable[[U8], None]:
        """Returns what writes `[n, bytes]` to `blocks`, as `reads_aside`."""
