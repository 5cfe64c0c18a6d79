"""Memory of this process that others on the machine can be let read: a file without a name (memfd), mapped once.

Its size is fixed and no further mapping of it can be written through (seals), so whoever is given its descriptor reads
and does nothing else, and never meets an end of the file that was cut off.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import weakref

import numpy as np
from numpy.typing import NDArray

PAGE_BYTES, HUGE_PAGE_BYTES = mmap.PAGESIZE, 2 << 20
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL if hasattr(fcntl, "F_SEAL_SEAL") else 0
_FUTURE_WRITE = 0x10
"""F_SEAL_FUTURE_WRITE of Linux 5.1, which Python does not name."""


class SharedMemory:
    """So many bytes, zero at first and taken from the system when they are first touched. Parts of it are given out and
    never taken back; it goes when nothing refers to it any more, here and in whoever maps it."""

    def __init__(self, num_bytes: int) -> None:
        """Raises OSError where the system has no such memory."""
        if not hasattr(os, "memfd_create"):
            raise OSError("this system has no memory that others can be let read")
        self.num_bytes = -(-num_bytes // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
        self.fd = os.memfd_create("kv-blocks", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._close = weakref.finalize(self, os.close, self.fd)
        try:
            os.ftruncate(self.fd, self.num_bytes)
            memory = mmap.mmap(self.fd, self.num_bytes)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, SEALS | _FUTURE_WRITE)
        except OSError:
            self._close()
            raise
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without them
                memory.madvise(mmap.MADV_HUGEPAGE)
        self._bytes: NDArray[np.uint8] = np.frombuffer(memory, np.uint8)
        self._taken = 0

    def take(self, num_bytes: int) -> NDArray[np.uint8]:
        """The next so many bytes, from the beginning of a page. MemoryError if there are not so many left."""
        start, end = self._taken, self._taken + num_bytes
        if end > self.num_bytes:
            raise MemoryError(f"{num_bytes} bytes are more than {self.num_bytes - start} that are left")
        self._taken = start + room_for(num_bytes)
        return self._bytes[start:end]

    def offset_of(self, array: NDArray[np.uint8]) -> int | None:
        """Where the file has the bytes of a contiguous `array`; None: they are not of this memory."""
        offset = array.ctypes.data - self._bytes.ctypes.data
        return offset if 0 <= offset <= self.num_bytes - array.nbytes else None


def room_for(*sizes: int) -> int:
    """Bytes of a memory from which parts of such sizes can be taken."""
    return sum(-(-size // PAGE_BYTES) * PAGE_BYTES for size in sizes)


def is_sealed(fd: int) -> bool:
    """Whether a file can never be cut off under whoever maps it."""
    try:
        return bool(fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK)
    except OSError:
        return False
