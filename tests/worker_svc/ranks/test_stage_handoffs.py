"""Requests go from one worker of several stages to another, with the parts of all stages (RK11, RK17)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker_svc.handoff.test_model_handoffs import NUM_DRAFTS, assert_moves_as_it_stays
from tests.worker_svc.ranks.groups import group
from tests.worker_svc.ranks.test_group_tokens import Preset, alone, preset

__all__ = ["preset"]
pytestmark = pytest.mark.timeout(300)
TWO = {"tensor_parallel": 1, "pipeline_parallel": 2}
SETTINGS = {
    "num_blocks": 160,
    "mean_request_tokens": 128,
    "max_num_batched_tokens": 64,
    "speculative": f"ngram:{NUM_DRAFTS}",
    "hand_off": True,
}


@pytest.mark.parametrize(
    ("name", "parts", "drafts"),
    [
        ("hybrid-qwen3-5", TWO, NUM_DRAFTS),
        ("hybrid-lfm2", TWO | {"pipeline_parallel": 3}, 0),
        ("tiny-gemma3", TWO, 0),
        pytest.param("tiny-gemma4-shared", TWO, NUM_DRAFTS, marks=pytest.mark.soak),
        pytest.param("hybrid-kimi-linear", TWO, NUM_DRAFTS, marks=pytest.mark.soak),
        pytest.param("hybrid-falcon-h1", TWO, 0, marks=pytest.mark.soak),
        pytest.param("hybrid-qwen3-5", TWO | {"tensor_parallel": 2}, NUM_DRAFTS, marks=pytest.mark.soak),
    ],
)
def test_a_request_moves_between_workers_of_stages(
    preset: Preset, name: str, parts: dict[str, int], drafts: int
) -> None:
    """RK11, RK17, HO5: almost with every token, with what drafts gave to recurrent layers, or in the middle of its
    prompt; drawn tokens, penalties and log-probabilities are those of one process in which it stayed."""
    path: Path = preset(name)
    plain, _ = alone(path, **SETTINGS)
    with group(path, **parts, **SETTINGS) as (source, _), group(path, **parts, **SETTINGS) as (target, _):
        assert source.info.kv_layout == target.info.kv_layout != plain.info.kv_layout
        assert_moves_as_it_stays(plain, (source, target), drafts)
        assert source.failure is None and target.failure is None
