"""Tiny models with heads, written once per test session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.random_heads import make_head_model


@pytest.fixture(scope="session")
def head_dir(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Directory of a preset in float32, by its name."""
    made: dict[str, Path] = {}

    def get(preset: str) -> Path:
        if preset not in made:
            made[preset] = make_head_model(preset, tmp_path_factory.mktemp(preset), seed=1)
        return made[preset]

    return get
