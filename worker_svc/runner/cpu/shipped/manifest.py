"""What lies beside shipped libraries: which sources they were made of, their sizes and their hashes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "lib"
"""Where shipped libraries are; a checkout has none."""
NAME = "kernels.json"


class ManifestError(Exception):
    """A shipped library, or all of them, may not be loaded; the message says why."""


@dataclass(frozen=True)
class Entry:
    """What a library is known by."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The libraries of a folder."""

    sources: str
    """Hash of the sources and of the options of the compiler: with another one, calls could be misread."""
    compiler: str
    """What it says of itself."""
    libraries: Mapping[str, Entry]
    """The libraries by the names of their kinds of CPU."""

    def write(self, folder: Path) -> None:
        """Writes it beside the libraries."""
        (folder / NAME).write_text(json.dumps(asdict(self), indent=1) + "\n")


def read_manifest(folder: Path) -> Manifest | None:
    """None where nothing was shipped. ManifestError if it cannot be read."""
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        told: dict[str, Any] = json.loads(path.read_text())
        libraries = {name: Entry(**entry) for name, entry in told.pop("libraries").items()}
        return Manifest(**told, libraries=libraries)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ManifestError(f"{path} cannot be read: {error}") from error


def library_path(folder: Path, name: str) -> Path:
    """The library for a kind of CPU."""
    return folder / f"kernels-{name}.so"


def entry_of(path: Path) -> Entry:
    """What the manifest says of a file. OSError if it cannot be read."""
    content = path.read_bytes()
    return Entry(len(content), hashlib.sha256(content).hexdigest())


def check_library(path: Path, entry: Entry) -> None:
    """ManifestError if the file is not what was made: mapping one that was cut off could end the process."""
    try:
        found = entry_of(path)
    except OSError as error:
        raise ManifestError(f"{path} cannot be read: {error}") from error
    if found.bytes != entry.bytes:
        raise ManifestError(f"{path} has {found.bytes} bytes instead of {entry.bytes}")
    if found.sha256 != entry.sha256:
        raise ManifestError(f"{path} is not the library that was made: its hash is another one")
