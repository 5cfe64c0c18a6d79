"""Layers with windows or chunks have blocks of their own on a GPU, too: its runner on the CPU, steps ahead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.worker_svc.runner.cuda.serving_ahead import RecordingRunner, serve_ahead
from tests.worker_svc.runner.reference import make_prompts
from tests.worker_svc.runner.runner_harness import GARBAGE

ModelDir = Callable[[str], Path]


@pytest.mark.parametrize("depth", [2, 4])
@pytest.mark.parametrize("name", ["gemma3", "gpt-oss", "llama4", "mistral"])
def test_steps_ahead_through_groups(model_dir: ModelDir, name: str, depth: int) -> None:
    """O4, WB1, WB2, WB8: blocks of a window go to others while steps are in flight; some requests end in mid-flight.
    Rows write into no block that nobody was told of."""
    path, prompts = model_dir(f"tiny-{name}"), make_prompts((5, 31, 40, 61))
    runner = RecordingRunner.of(path, mean_request_tokens=128, max_num_batched_tokens=8)
    assert runner.info.groups and runner.info.groups[0].num_blocks < runner.info.num_blocks
    serve_ahead(runner, path, prompts, depth)
    for number, layer in zip(runner._layout.of_layers, runner._cache.layers, strict=True):
        told = runner.info.groups[number - 1].num_blocks if number else runner.info.num_blocks
        assert len(layer.keys) == told + 1
        assert (layer.keys[told] == GARBAGE).all()
