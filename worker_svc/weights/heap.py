"""Memory that the C library keeps of what was freed, given back to the system while a model is loaded.

glibc keeps freed blocks below 32 MB, and what lies between two small blocks that live on stays resident: temporaries of
loading a model of 1.2 GB left 350 to 750 MB behind.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

STEP_BYTES = 32 << 20
"""Bytes of weights that are made or packed between two trims: a trim takes milliseconds, and pages that are taken again
are zeroed again."""


def _find_trim() -> Callable[[int], int] | None:
    """glibc's `malloc_trim`; None: this C library has none."""
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return found


class HeapTrim:
    """Counts bytes of weights. Several threads may call it."""

    def __init__(self, trim: Callable[[int], int] | None = None, step_bytes: int = STEP_BYTES) -> None:
        """`trim` is called with 0 each time that `step_bytes` more were added; None: nothing is done."""
        self._trim = trim
        self._step = step_bytes
        self._added = 0
        self._lock = threading.Lock()

    def add(self, num_bytes: int) -> None:
        """Tells that weights of so many bytes were made, and that what making them took is free again."""
        with self._lock:
            self._added += num_bytes
            if self._added < self._step:
                return
            self._added = 0
        self.now()

    def now(self) -> None:
        """Gives back what is free."""
        if self._trim is not None:
            self._trim(0)


heap_trim = HeapTrim(_find_trim())
"""The one of this process, as its heap is."""
