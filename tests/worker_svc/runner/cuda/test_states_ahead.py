"""Recurrent states on a GPU: its runner on the CPU, steps ahead of their tokens, each on a version of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.worker_svc.runner.cuda.serving_ahead import RecordingRunner, serve_ahead, serve_drafted
from tests.worker_svc.runner.reference import make_prompts
from tools.hybrid_families import HYBRID_PRESETS

ModelDir = Callable[[str], Path]


@pytest.mark.parametrize("preset", HYBRID_PRESETS)
def test_steps_ahead_on_states(model_dir: ModelDir, preset: str) -> None:
    """O4, SG3, SG4: states are garbage where nothing was written; some requests end in mid-flight, and others pass
    boundaries that are kept."""
    path = model_dir(preset)
    runner = RecordingRunner.of(path, num_checkpoints=8)
    assert runner.info.num_state_versions == 3
    serve_ahead(runner, path, make_prompts((5, 31, 40, 61)), 2)
    assert runner.num_keeps


def test_more_requests_than_blocks(model_dir: ModelDir) -> None:
    """O5, SG4: some are preempted, with steps in flight, and go on from their checkpoints or begin again."""
    path = model_dir("hybrid-qwen3-5")
    runner = RecordingRunner.of(path, num_checkpoints=8, num_blocks=60)
    ring = serve_ahead(runner, path, make_prompts((5, 31, 40, 61, 17, 16, 70, 2)), 4)
    assert ring.worker.stats.num_preemptions


@pytest.mark.parametrize("preset", ["hybrid-qwen3-5", "hybrid-lfm2"])
def test_drafts(model_dir: ModelDir, preset: str) -> None:
    """SG10, SG12: steps without drafts run right ones of the step before again."""
    path = model_dir(preset)
    runner = RecordingRunner.of(path, num_checkpoints=8, max_draft_tokens=3)
    serve_drafted(runner, path, make_prompts((5, 31, 40)), 3, 60)
    assert runner.num_keeps
