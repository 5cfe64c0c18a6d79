"""What a service says whose `--model` is no directory."""

from __future__ import annotations

from pathlib import Path


def no_directory(directory: Path, service: str) -> str:
    """service: worker or frontend. A model's name is taken by the command line alone, which may fetch models."""
    return (
        f"the model directory {directory} does not exist; for a model by its name: "
        f"signalbox serve {service} --model NAME"
    )
