"""Makes a model directory of a GGUF file: its metadata written as other files, and a link to its weights."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from signalbox.cli.models.cache import making, models_dir, put
from signalbox.cli.models.progress import Progress
from signalbox.errors import StartupError
from signalbox.runtime.start.interpreter import module_command

CONVERTER = "worker_svc.gguf"
"""A process of its own: the command line imports no service."""
CONVERSION = 2
"""Counts up when what is made of a file changes, so that an older result is not taken for the new one."""
METADATA_BYTES = 200_000_000
"""Room for what is written of the metadata of the largest vocabularies."""


def find_gguf(path: Path, progress: Progress) -> Path:
    """The model directory of a GGUF file of this machine, made when it is not there, or when the file has changed.

    Raises StartupError with what is in the way.
    """
    about = path.stat()
    key = f"{path.resolve()}\0{about.st_size}\0{about.st_mtime_ns}"
    target = models_dir() / f"{path.stem}-{hashlib.sha256(key.encode()).hexdigest()[:12]}-{CONVERSION}"
    if not target.is_dir():
        with making(target, METADATA_BYTES) as partial:
            put(convert(path, partial / "model", path.stem, progress), target)
    return target


def convert(source: Path, target: Path, name: str, progress: Progress) -> Path:
    """Makes the directory `target` anew. Raises StartupError with what the converter says."""
    progress.step(f"making {name} of {source.name}")
    shutil.rmtree(target, ignore_errors=True)
    command = module_command(CONVERTER, str(source), str(target))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    progress.end()
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise StartupError(f"{name} cannot be converted: {said[-1] if said else done.returncode}")
    return target
