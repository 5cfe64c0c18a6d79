"""Families in bfloat16: bit for bit the same logits, wherever prompts are cut and whatever is computed again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.worker_svc.runner.reference import make_prompts, make_runner
from tests.worker_svc.runner.test_invariance import is_same, run_all
from tools.make_random_model import PRESETS, fill_weights
from worker_svc.runner.attention.attention import native_kernels

kernels = native_kernels()
needs_dot = pytest.mark.skipif(
    kernels is None or not kernels.has_dot, reason="this machine has no dot product of bfloat16"
)
WIDTHS = (
    *("hidden_size", "n_embd", "intermediate_size", "moe_intermediate_size", "head_dim", "global_head_dim"),
    *("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
)
FAMILIES = ("gemma3", "gpt-oss", "deepseek-v3", "cohere2", "llama4", "phi", "gpt2", "qwen3-moe")
"""Windows, sinks and experts, latent attention, no rope in some layers, chunks, biases, learned positions, norms."""


def save_wide(family: str, path: Path) -> Path:
    """The tiny model with heads of 32 and more dimensions, which the kernel of prompts takes."""
    config_class, settings = PRESETS[f"tiny-{family}"]
    wide = {name: 2 * settings[name] for name in WIDTHS if settings.get(name)}
    auto_model: Any = AutoModelForCausalLM
    model = auto_model.from_config(config_class(**(settings | wide)))
    fill_weights(model, torch.Generator().manual_seed(0))
    model.generation_config.eos_token_id = None
    model.to(torch.bfloat16).save_pretrained(path)
    return path


@needs_dot
@pytest.mark.sampled
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_goes_on_with_the_same_bits(family: str, tmp_path: Path) -> None:
    """Y2."""
    runner = make_runner(save_wide(family, tmp_path), dtype="bfloat16", block_size=16)
    whole = run_all(runner, make_prompts(), 200, 0)
    for chunk_size, preemptions in ((20, 0), (30, 5)):
        again = run_all(runner, make_prompts(), chunk_size, preemptions)
        assert whole.keys() == again.keys()
        for length, (output, logits) in whole.items():
            assert again[length][0] == output, length
            assert is_same(again[length][1], logits), length
