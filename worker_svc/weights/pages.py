"""Pages of memory whose numbers nobody wants any more, given back to the system before their owner is gone."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable

import torch


def _find_madvise() -> Callable[[int, int, int], int] | None:
    """The C library's `madvise`; None: this system has none."""
    function = getattr(ctypes.CDLL(None), "madvise", None)
    if function is not None:
        function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function


_madvise = _find_madvise()


def give_up(tensor: torch.Tensor) -> None:
    """Gives up the pages that lie wholly in a contiguous tensor: its numbers are undefined afterwards, but those of a
    mapped file, which nobody has written to, are read anew."""
    assert tensor.is_contiguous(), "pages between its numbers are others'"
    start, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    length = end // mmap.PAGESIZE * mmap.PAGESIZE - first
    if length > 0 and _madvise is not None:
        _madvise(first, length, mmap.MADV_DONTNEED)
