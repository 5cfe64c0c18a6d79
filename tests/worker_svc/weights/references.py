"""Other projects' own code that says what quantised weights are: wheels, imported from where they were fetched."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from typing import Any

from tests.downloads import wheel

COMPRESSED_TENSORS = (
    "compressed-tensors==0.20.0",
    "fd18911b3fb818eb11976d2a19134a58b5262b265b375c8d4a6a7282e80b7513",
)
"""Apache-2.0."""
LOGURU = ("loguru==0.7.3", "31a33c10c8e1e10422bfd431aeb5d351c7cf7fa671e3c4df004162264b28220c")
GGUF = ("gguf==0.19.0", "70bcd10edfe697fb2dad6e40af2234b9d8ece9a41a99761405121ebda1c3c1cd")
"""MIT, of llama.cpp."""


def compressed_tensors(module: str) -> Any:
    """A module of compressed-tensors. Skips the test where it cannot be had."""
    return _imported(f"compressed_tensors.{module}", LOGURU, COMPRESSED_TENSORS)


def gguf_quants() -> Any:
    """The quantisers of llama.cpp's Python package. Skips the test where it cannot be had."""
    return _imported("gguf.quants", GGUF)


@cache
def _imported(name: str, *wheels: tuple[str, str]) -> Any:
    """The module, whatever else is called so here: pytest takes a folder of tests for a package of that name."""
    paths = [str(wheel(*each)) for each in wheels]
    root = name.partition(".")[0]
    hidden = _popped(root) if not any(path in sys.path for path in paths) else {}
    sys.path[:0] = paths
    try:
        return importlib.import_module(name)
    finally:
        if hidden:
            _popped(root)
            sys.modules.update(hidden)
            del sys.path[: len(paths)]


def _popped(root: str) -> dict[str, Any]:
    """Takes a package and its modules out of those that are imported."""
    return {each: sys.modules.pop(each) for each in list(sys.modules) if f"{each}.".startswith(f"{root}.")}
