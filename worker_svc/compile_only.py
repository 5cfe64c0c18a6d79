"""Fills a folder with the compiled kernels of a model, for an image to ship: `worker-svc --compile-only DIR`."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import NamedTuple

from signalbox.errors import StartupError
from worker_svc.config import WorkerSettings
from worker_svc.runner_factory import make_runner

logger = logging.getLogger(__name__)
CACHE = "TRITON_CACHE_DIR"
"""Environment variable by which Triton is told where it keeps what it compiled."""


class Filled(NamedTuple):
    """What a folder of compiled kernels holds."""

    num_kernels: int
    num_bytes: int


def compile_only(settings: WorkerSettings, directory: Path) -> Filled:
    """Starts a worker's runner, warm-up included, with Triton's cache in `directory`, and says what is there then.

    A start with the same settings, TRITON_CACHE_DIR and card finds all of it there, as it does the same. StartupError
    where that start would fail, or where there is nothing to keep.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StartupError(f"--compile-only {directory}: {error.strerror}") from None
    os.environ[CACHE] = str(directory.absolute())
    make_runner(settings)
    filled = filled_of(directory)
    if not filled.num_kernels:
        raise StartupError(f"--compile-only {directory}: no kernel was compiled, as Triton is not used")
    logger.info(
        "%d compiled kernels, %.1f MB: serve with %s=%s, at this very path",
        filled.num_kernels,
        filled.num_bytes / 1e6,
        CACHE,
        directory.absolute(),
    )
    return filled


def filled_of(directory: Path) -> Filled:
    """What is in Triton's cache `directory`."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    num_kernels = sum(path.suffix == ".cubin" for path in files)
    return Filled(num_kernels, sum(path.stat().st_size for path in files))
