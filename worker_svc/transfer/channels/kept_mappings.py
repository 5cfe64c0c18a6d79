"""Mappings of other workers' caches, kept from pull to pull: most of what a new one costs is that each of its pages is
met for the first time."""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
KEEP_S = 10.0
"""Seconds for which a mapping is kept behind the last pull that opened it. It keeps the memory of a worker that has
died: for less time than a new one takes to have a model in memory."""


@dataclass
class _Kept:
    mapping: mmap.mmap
    opened_s: float
    """When a pull asked for it last, by the monotonic clock."""


class KeptMappings:
    """Any thread may ask. A mapping goes when nobody has asked for it for so long and nothing refers to its bytes."""

    def __init__(self, keep_s: float = KEEP_S) -> None:
        """keep_s: seconds; see KEEP_S."""
        self._keep_s = keep_s
        self._kept: dict[tuple[int, int], _Kept] = {}
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._is_closed = False

    def map(self, fd: int) -> Bytes:
        """The bytes of a file, to read: by the mapping that is here, if one of that very file is. Raises OSError."""
        status = os.fstat(fd)
        key = status.st_dev, status.st_ino  # nobody else's, for as long as the file is mapped
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                mapping = mmap.mmap(fd, status.st_size, prot=mmap.PROT_READ)
                kept = self._kept[key] = _Kept(mapping, 0.0)
            kept.opened_s = time.monotonic()
            self._look_later()
            return np.frombuffer(kept.mapping, np.uint8)

    def close(self) -> None:
        """Keeps nothing that is not read, and looks at nothing any more."""
        with self._lock:
            self._is_closed = True
            if self._timer is not None:
                self._timer.cancel()
            self._drop(list(self._kept))
            self._kept.clear()  # what somebody reads goes with the last who does

    def _look_later(self) -> None:
        if self._timer is None and self._kept and not self._is_closed:
            self._timer = threading.Timer(self._keep_s, self._look)
            self._timer.daemon = True
            self._timer.start()

    def _look(self) -> None:
        with self._lock:
            self._timer = None
            idle_since = time.monotonic() - self._keep_s
            self._drop([key for key, kept in self._kept.items() if kept.opened_s <= idle_since])
            self._look_later()

    def _drop(self, keys: list[tuple[int, int]]) -> None:
        for key in keys:
            # Its pages are given back outside of the interpreter's lock, as they would not be where it merely went.
            with contextlib.suppress(BufferError):  # somebody reads it
                self._kept[key].mapping.close()
                del self._kept[key]


def map_file(fd: int) -> Bytes:
    """The bytes of a file, to read. They are mapped for as long as anything refers to them. Raises OSError."""
    return np.frombuffer(mmap.mmap(fd, os.fstat(fd).st_size, prot=mmap.PROT_READ), np.uint8)
