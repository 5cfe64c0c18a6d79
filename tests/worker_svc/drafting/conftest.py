"""Tiny models with random weights, written once per test session."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tools.make_random_model import make_model

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def target_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 512 tokens, in float32."""
    return make_model("tiny-llama", tmp_path_factory.mktemp("target"), seed=1)


@pytest.fixture(scope="session")
def other_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model of the same tokens, which agrees with the first by chance only."""
    return make_model("tiny-qwen3", tmp_path_factory.mktemp("other"), seed=2)
