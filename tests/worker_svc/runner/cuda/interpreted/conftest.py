"""Tests of Triton's kernels in its interpreter, which has to be chosen before Triton is imported.

`test_triton_interpreted.py` runs them in a process of their own; in any other process they are not collected.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
collect_ignore_glob = [] if IS_INTERPRETED else ["test_*.py"]


def keep_rows_apart() -> None:
    """On a GPU no row of a product depends on the others of its tile. The interpreter asks the BLAS of this machine,
    which on some CPUs adds up the last rows of a matrix in another order."""
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle  # noqa: PLC0415

    through_blas = InterpreterBuilder.create_dot

    def create_dot(self: Any, a: Any, b: Any, d: Any, *options: Any) -> Any:
        if {tile.data.dtype for tile in (a, b, d)} != {np.dtype(np.float32)}:
            return through_blas(self, a, b, d, *options)
        return TensorHandle(np.einsum("ik,kj->ij", a.data, b.data) + d.data, d.dtype.scalar)

    InterpreterBuilder.create_dot = create_dot


if IS_INTERPRETED:
    keep_rows_apart()
