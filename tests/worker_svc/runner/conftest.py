"""Tiny models with random weights, written once per test session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tools.make_random_model import make_model

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Directory of a preset in float32, by its name."""
    made: dict[str, Path] = {}

    def get(preset: str) -> Path:
        if preset not in made:
            made[preset] = make_model(preset, tmp_path_factory.mktemp(preset), seed=1)
        return made[preset]

    return get
