"""One OpenMP runtime in the process: torch's. A second one would have threads of its own, on the same cores."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

import torch  # noqa: F401 (it brings the runtime)

RUNTIME = re.compile(r"/lib(gomp|iomp5|omp)\b[^/]*\.so[^/]*$")
ENTRY = "GOMP_parallel"
"""What compiled kernels call; Intel's and LLVM's runtimes have it, too."""


def share_openmp() -> str:
    """Lets libraries that are loaded from now on find the runtime, which torch keeps to itself, under whatever name.

    Returns its path; the system's is loaded if torch has brought none. OSError if there is none at all.
    """
    for path in runtimes():
        if hasattr(ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL | os.RTLD_NOLOAD), ENTRY):
            return path
    ctypes.CDLL("libgomp.so.1", mode=ctypes.RTLD_GLOBAL)
    return "libgomp.so.1"


def runtimes() -> list[str]:
    """Paths of the runtimes that are loaded, torch's first."""
    maps = Path("/proc/self/maps")
    if not maps.is_file():
        return []
    paths = (line.split(maxsplit=5)[-1] for line in maps.read_text().splitlines())
    found = dict.fromkeys(path for path in paths if RUNTIME.search(path))
    return sorted(found, key=lambda path: "/torch" not in path)
