"""Blocks of a KV cache copied by the compiled kernels: one call outside of the interpreter's lock, however many rows
there are and wherever they lie."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from worker_svc.runner.cpu.native.library import load_library
from worker_svc.runner.cpu.native.signatures import SIGNATURES
from worker_svc.runner.cpu.native.structs import StripPair
from worker_svc.transfer.row_copies import I64, CopierOf, Rows, numpy_copier

NAME = "signalbox_copy_rows"


def copier_here() -> CopierOf:
    """What copies rows fastest here: the kernels, or numpy where they cannot be had. May compile them."""
    library = load_library()
    return numpy_copier if library is None else native_copier(library)


def native_copier(library: ctypes.CDLL) -> CopierOf:
    """The copier that is in a library of kernels."""
    copy_rows = library[NAME]
    copy_rows.argtypes, copy_rows.restype = SIGNATURES[NAME], None
    return partial(_NativeCopy, copy_rows)


class _NativeCopy:
    """Copies blocks of some strips to those of others."""

    def __init__(
        self, copy_rows: Callable[..., None], targets: Sequence[Rows], sources: Sequence[Rows]
    ) -> None:
        self._copy_rows = copy_rows
        self._pairs = list(zip(targets, sources, strict=True))
        """Kept in memory: the kernel has their addresses."""
        assert all(rows.flags.c_contiguous for pair in self._pairs for rows in pair)
        self._strips = (StripPair * len(self._pairs))(
            *(
                StripPair(target.ctypes.data, source.ctypes.data, target.shape[1])
                for target, source in self._pairs
            )
        )

    def __call__(self, target_blocks: I64, source_blocks: I64) -> None:
        assert len(target_blocks) == len(source_blocks)
        targets, sources = np.ascontiguousarray(target_blocks), np.ascontiguousarray(source_blocks)
        self._copy_rows(
            self._strips, len(self._strips), targets.ctypes.data, sources.ctypes.data, len(targets)
        )
