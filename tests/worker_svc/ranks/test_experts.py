"""Experts that are divided by their numbers give the tokens of one process (RK16)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.worker_svc.ranks.groups import Groups, assert_transformers_own, group, settings_for
from tests.worker_svc.ranks.test_group_tokens import alone, groups, play, preset
from worker_svc.runner.split.expert_share import ExpertShare
from worker_svc.runner.torch_runner import TorchRunner

__all__ = ["groups", "preset"]
pytestmark = pytest.mark.timeout(300)
BY_EXPERT = {"tensor_parallel": 2, "expert_parallel": True}
FAMILIES = (
    "tiny-qwen3-moe",
    "tiny-gpt-oss",
    "tiny-deepseek-v3",
    "tiny-llama4",
    "tiny-mixtral",
    "tiny-qwen2-moe",
    "tiny-glm4-moe",
    "tiny-deepseek-v2",
    "tiny-minimax-m2",
    "hybrid-qwen3-next",
)
SOME = FAMILIES[:4]


@pytest.mark.parametrize(
    "name", [name if name in SOME else pytest.param(name, marks=pytest.mark.soak) for name in FAMILIES]
)
def test_greedy_tokens_are_transformers_own(preset: Any, groups: Groups, name: str) -> None:
    """RK16: the families that have experts."""
    path = preset(name)
    runner, _ = groups(path, **BY_EXPERT)
    assert_transformers_own(path, runner)
    shares = [part for part in runner.model.module.modules() if isinstance(part, ExpertShare)]
    assert shares, "no layer has its experts divided"


@pytest.mark.parametrize(
    "settings",
    [
        {"speculative": "ngram:4", "num_blocks": 36},
        {"quantization": "int8"},
        pytest.param({"pipeline_parallel": 2}, marks=pytest.mark.soak),
        pytest.param({"tensor_parallel": 4}, marks=pytest.mark.soak),
    ],
)
def test_what_goes_with_it(preset: Any, settings: dict[str, Any]) -> None:
    """Drafts, preemptions, whole numbers, stages, more ranks."""
    path, num_drafts = preset("tiny-qwen3-moe"), 4 if "speculative" in settings else 0
    plain = {**settings, "tensor_parallel": 1, "pipeline_parallel": 1}
    wanted = play(*alone(path, **plain), 2, num_drafts)
    with group(path, **(BY_EXPERT | settings)) as (runner, drafter):
        clients = play(runner, drafter, 2, num_drafts)
    close = 0.02 if "quantization" in settings else 1e-3
    assert clients[5].prompt_logprobs == pytest.approx(wanted[5].prompt_logprobs, abs=close)
    same = sum(mine.output[:4] == theirs.output[:4] for mine, theirs in zip(clients, wanted, strict=True))
    assert same >= len(clients) - 1


def test_each_rank_has_its_experts_alone(preset: Any, groups: Groups) -> None:
    """Half of them, each as wide as in the whole model; what else there is is cut as ever."""
    path = preset("tiny-qwen3-moe")
    whole, _ = alone(path)
    runner, _ = groups(path, **BY_EXPERT)
    shares = [part for part in runner.model.module.modules() if isinstance(part, ExpertShare)]
    num_experts = runner.model.module.config.num_experts
    assert shares and all((part.first, part.end) == (0, num_experts // 2) for part in shares)
    assert isinstance(whole, TorchRunner)
    assert runner.model.layer_shapes[0].elements * 2 == whole.model.layer_shapes[0].elements
    assert "by experts" in runner.info.identity.form


def test_what_is_not_divided_so_is_refused(preset: Any, tmp_path: Path) -> None:
    """RK9."""
    with pytest.raises(ValueError, match="--expert-parallel needs --tensor-parallel"):
        settings_for(tmp_path, tensor_parallel=1, expert_parallel=True)
    with pytest.raises(Exception, match="the model has no experts"), group(preset("tiny-llama"), **BY_EXPERT):
        pass
