"""Which library has the kernels: one that was shipped, or one that is compiled here where that is better."""

from __future__ import annotations

import ctypes
import logging
import platform
import sys
from collections.abc import Collection
from functools import cache
from pathlib import Path

from worker_svc.runner.cpu.flags import cpu_flags
from worker_svc.runner.cpu.native.build import BuildError, open_compiled, source_key
from worker_svc.runner.cpu.native.openmp import share_openmp
from worker_svc.runner.cpu.native.structs import LayoutError, check_layouts
from worker_svc.runner.cpu.shipped.isas import Isa, runnable, unused
from worker_svc.runner.cpu.shipped.manifest import (
    FOLDER,
    Manifest,
    ManifestError,
    check_library,
    library_path,
    read_manifest,
)

logger = logging.getLogger(__name__)


@cache
def load_library() -> ctypes.CDLL | None:
    """The kernels. None, and a warning that says what it costs, where they cannot be had.

    What is shipped is taken unless this CPU has what the sources could use and the library does not.
    """
    flags = cpu_flags()
    shipped = load_shipped(FOLDER, flags)
    isa = shipped[0] if shipped else None
    more = ", ".join(unused(isa, flags)) or "nothing more"
    if shipped and more == "nothing more":
        logger.info("The CPU kernels are the shipped ones for %s.", shipped[0].name)
        return shipped[1]
    try:
        share_openmp()
        library = open_compiled()
    except (BuildError, OSError) as error:
        if shipped:
            logger.warning(
                "The CPU kernels are the shipped ones for %s, which make no use of what this CPU has more (%s); "
                "better ones could not be compiled: %s.",
                *(shipped[0].name, more, error),
            )
            return shipped[1]
        logger.warning(
            "The native CPU kernels are not available (%s). Attention takes six to eleven times as long, and the "
            "rest of steps of few tokens up to twice as long; install g++, or a wheel for this machine, which has "
            "them compiled.",
            error,
        )
        return None
    logger.info("The CPU kernels were compiled for this CPU.")
    return library


def load_shipped(folder: Path, flags: Collection[str]) -> tuple[Isa, ctypes.CDLL] | None:
    """The best library for a CPU with these flags, and what it is for. Each that is refused is named in the log."""
    try:
        manifest = read_manifest(folder) if sys.platform == "linux" else None
        if manifest is not None:
            check_sources(folder, manifest)
    except ManifestError as error:
        logger.warning("The shipped CPU kernels are refused: %s.", error)
        return None
    for isa in runnable(platform.machine(), flags) if manifest else []:
        if manifest and isa.name in manifest.libraries:
            try:
                return isa, open_shipped(folder, isa, manifest)
            except (ManifestError, LayoutError, OSError, AttributeError) as error:
                logger.warning("The shipped CPU kernels for %s are refused: %s.", isa.name, error)
    return None


def check_sources(folder: Path, manifest: Manifest) -> None:
    """ManifestError if the libraries were made of other sources than those here."""
    if manifest.sources != source_key():
        raise ManifestError(f"those in {folder} were made of other sources than these")


def open_shipped(folder: Path, isa: Isa, manifest: Manifest) -> ctypes.CDLL:
    """The library for `isa`. ManifestError or LayoutError if it is another one, OSError if it does not load here."""
    path = library_path(folder, isa.name)
    check_library(path, manifest.libraries[isa.name])
    share_openmp()
    library = ctypes.CDLL(str(path))
    check_layouts(library)
    return library
