"""Every family named in the documentation, against transformers' own generation; what is refused, with the reason."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, BloomConfig, GPTJConfig, MptConfig, PreTrainedConfig

from tests.worker_svc.runner.reference import LONGEST, assert_greedy, make_prompts, make_runner
from tests.worker_svc.runner.runner_harness import Driver
from tests.worker_svc.runner.test_wrappers import WRAPPERS
from tools import random_heads
from tools.hybrid_families import HYBRID_PRESETS
from tools.make_random_model import PRESETS
from worker_svc.runner.cpu.fused import FusedAttention
from worker_svc.runner.cpu.packed_linear import PackedLinear
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model import support

ModelDir = Callable[[str], Path]
NUM_TOKENS = 64
FAMILIES = [name for name in PRESETS if name.startswith("tiny-")]
NOT_FUSED = {
    *("cohere-normed", "deepseek-v2", "deepseek-v3", "deepseek-v32", "glm-moe-dsa"),
    *("gpt-neox", "gpt2", "hunyuan", "phi-normed"),
}
FUSED_IN_PART = {"gemma4-shared"}
"""Layers that share keys and values are not."""


@pytest.mark.sampled
@pytest.mark.parametrize("preset", FAMILIES)
def test_greedy_output_equals_generate(
    model_dir: ModelDir, preset: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Eight requests of 64 tokens in chunks, preempted now and then, longer than the windows, with modules swapped for
    faster ones."""
    path = model_dir(preset)
    with caplog.at_level(logging.INFO):
        runner = make_runner(path, max_model_len=LONGEST.get(preset))
    assert not [r for r in caplog.records if "without fused modules" in r.message]
    assert any(isinstance(module, PackedLinear) for module in runner.model.module.modules())
    fused = any(isinstance(module, FusedAttention) for module in runner.model.module.modules())
    name = preset.removeprefix("tiny-")
    assert fused == (name not in NOT_FUSED)
    assert ("attention is not fused" in caplog.text) == (name in NOT_FUSED | FUSED_IN_PART)
    driver = Driver(runner)
    requests = [driver.add(prompt, NUM_TOKENS) for prompt in make_prompts()]
    driver.run(chunk_size=30, preemptions=4)
    near_ties = sum(
        assert_greedy(request.output, path, prompt, NUM_TOKENS)
        for request, prompt in zip(requests, make_prompts(), strict=True)
    )
    print(f"{preset}: {near_ties} near ties in {len(requests)} outputs")
    assert near_ties <= 1


def save_tiny(config: PreTrainedConfig, path: Path) -> Path:
    torch.manual_seed(0)
    auto_model: Any = AutoModelForCausalLM
    auto_model.from_config(config).save_pretrained(path)
    return path


@pytest.mark.parametrize(
    "config",
    [
        BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=2),
        GPTJConfig(vocab_size=64, n_embd=32, n_layer=2, n_head=2, rotary_dim=8, n_positions=64),
        MptConfig(vocab_size=64, d_model=32, n_layers=2, n_heads=2, max_seq_len=64),
    ],
    ids=lambda config: config.model_type,
)
@pytest.mark.parametrize("known", [True, False])
def test_own_attention_code_is_refused(
    tmp_path: Path, config: PreTrainedConfig, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name with a plain reason, and by what the model does if the name were not known."""
    if not known:
        monkeypatch.setattr(support, "REFUSED_FAMILIES", {})
    with pytest.raises(ModelLoadError, match="has attention code of its own"):
        make_runner(save_tiny(config, tmp_path))


@pytest.mark.parametrize(
    ("preset", "value"), [("tiny-gemma3", True), ("tiny-gemma4", "all"), ("tiny-gemma4", "vision")]
)
def test_models_that_look_ahead_are_refused_by_the_field(
    model_dir: ModelDir, tmp_path: Path, preset: str, value: object
) -> None:
    """Gemma 4's `vision` lets images alone look ahead, of which there are none."""
    shutil.copytree(model_dir(preset), tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"use_bidirectional_attention": value}))
    if value == "vision":
        make_runner(tmp_path)
        return
    with pytest.raises(ModelLoadError, match="use_bidirectional_attention lets queries look ahead"):
        make_runner(tmp_path)


def test_the_families_that_are_said_to_be_compared_are_those_of_these_tests() -> None:
    """`signalbox models` says so before a model is loaded."""
    compared = {kind.model_type for name, (kind, _) in PRESETS.items() if name in FAMILIES}
    heads = {
        getattr(transformers, f"{preset.config}Config").model_type for preset in random_heads.PRESETS.values()
    }
    wrappers = {getattr(transformers, f"{name}Config").model_type for name, _ in WRAPPERS.values()}
    hybrids = {kind.model_type for kind, _ in HYBRID_PRESETS.values()}
    assert compared | heads | wrappers | hybrids == support.COMPARED_FAMILIES
