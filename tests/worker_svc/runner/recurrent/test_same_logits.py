"""Logits of hybrid models are the same bit for bit, whatever else runs and wherever a prompt is cut."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.worker_svc.runner.reference import make_runner
from tests.worker_svc.runner.test_invariance import is_same, run_in_chunks
from worker_svc.runner.attention.attention import native_kernels

ModelDir = Callable[[str], Path]
WHOLE = [120]
kernels = native_kernels()


@pytest.mark.skipif(kernels is None or not kernels.has_dot, reason="there is no bfloat16 dot product")
@pytest.mark.parametrize(
    "preset",
    [
        "hybrid-qwen3-5",
        "hybrid-qwen3-next",
        "hybrid-olmo",
        "hybrid-bamba",
        "hybrid-falcon-h1",
        "hybrid-granite",
        "hybrid-jamba",
        "hybrid-kimi-linear",
        "hybrid-lfm2",
        "hybrid-lfm2-moe",
        "hybrid-nemotron-h",
    ],
)
def test_logits_in_bfloat16(model_dir: ModelDir, preset: str) -> None:
    """SG9. Products, attention and states are our own kernels there. Pieces of a prompt have 16 tokens or more, as
    attention rounds otherwise below."""
    runner = make_runner(model_dir(preset), dtype="bfloat16", block_size=16)
    alone = run_in_chunks(runner, WHOLE)
    assert is_same(alone, run_in_chunks(runner, WHOLE, company=5))
    for cuts in ([64, 56], [17, 103], [31, 33, 56]):
        assert is_same(alone, run_in_chunks(runner, cuts, company=2, seed=3)), cuts
