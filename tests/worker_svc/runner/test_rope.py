"""Rotations that transformers chooses by the longest position of a batch: chosen once, so that neighbours change
nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Phi3Config

from tests.worker_svc.runner.reference import assert_same_but_for_ties, generate, make_prompts, make_runner
from tests.worker_svc.runner.runner_harness import Driver
from tools.make_random_model import fill_weights, make_model
from tools.tiny_families import LONG_ROPE, PADDED, TINY
from worker_svc.runner.cpu.fused import FusedAttention

NUM_TOKENS = 20


@pytest.fixture(scope="module")
def long_rope(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Phi 3 made for 128 positions and stretched to 512."""
    path = tmp_path_factory.mktemp("longrope")
    auto_model: Any = AutoModelForCausalLM
    model = auto_model.from_config(
        Phi3Config(**TINY, **PADDED, rope_parameters=LONG_ROPE, original_max_position_embeddings=128)
    )
    fill_weights(model, torch.Generator().manual_seed(1))
    for layer in model.model.layers:
        layer.self_attn.qkv_proj.weight.data *= 2  # attention that is not flat
    model.save_pretrained(path)
    return path


def with_rope(path: Path, out_dir: Path, **rope: Any) -> Path:
    """The same model with other settings of its rope."""
    shutil.copytree(path, out_dir)
    file = out_dir / "config.json"
    config = json.loads(file.read_text())
    config["rope_parameters"] |= rope
    file.write_text(json.dumps(config))
    return out_dir


def with_factors(path: Path, out_dir: Path, kind: str) -> Path:
    """The same model whose two lists of factors are one."""
    factors = json.loads((path / "config.json").read_text())["rope_parameters"][kind]
    return with_rope(path, out_dir, short_factor=factors, long_factor=factors)


@pytest.mark.parametrize(
    ("max_model_len", "kind", "lengths"),
    [(None, "long_factor", (150, 5, 120)), (129, "long_factor", (5, 100)), (128, "short_factor", (5, 100))],
)
def test_longrope_has_one_list_of_factors_for_all_positions(
    long_rope: Path, tmp_path: Path, max_model_len: int | None, kind: str, lengths: tuple[int, ...]
) -> None:
    """Long and short requests in one batch: as a model that has only the list that --max-model-len chooses."""
    reference = with_factors(long_rope, tmp_path / "reference", kind)
    driver = Driver(make_runner(long_rope, max_model_len=max_model_len))
    prompts = make_prompts(lengths)
    requests = [driver.add(prompt, NUM_TOKENS) for prompt in prompts]
    driver.run(chunk_size=60)
    for request, prompt in zip(requests, prompts, strict=True):
        assert_same_but_for_ties(request.output, *generate(reference, tuple(prompt), NUM_TOKENS))
    generate.cache_clear()


def test_the_factors_name_the_model(long_rope: Path) -> None:
    """I7: workers with other `--max-model-len` may have other numbers, and then share no blocks."""
    long, short, same = (make_runner(long_rope, max_model_len=n).info.identity for n in (129, 128, 200))
    assert "longrope long" in long.form and "longrope short" in short.form
    assert long.key != short.key and long.key == same.key


def test_the_lists_differ(long_rope: Path, tmp_path: Path) -> None:
    """Otherwise the comparison above would show nothing."""
    prompt = tuple(make_prompts((100,))[0])
    long, short = (
        generate(with_factors(long_rope, tmp_path / kind, kind), prompt, NUM_TOKENS)
        for kind in ("long_factor", "short_factor")
    )
    assert long[0] != short[0]
    assert (long[1][0] - short[1][0]).abs().max() > 0.1


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_proportional_turns_the_first_pairs_by_the_frequencies_of_a_whole_head(
    tmp_path: Path, share: float
) -> None:
    """In chunks and mixed batches, by the fused attention: as transformers, and for a share of less than all of them
    unlike the plain rotation."""
    path = with_rope(
        make_model("tiny-llama-proportional", tmp_path / "made"),
        tmp_path / "model",
        partial_rotary_factor=share,
    )
    plain = with_rope(path, tmp_path / "plain", rope_type="default", partial_rotary_factor=1.0)
    runner = make_runner(path)
    assert any(isinstance(module, FusedAttention) for module in runner.model.module.modules())
    driver = Driver(runner)
    prompts = make_prompts((5, 61, 17))
    requests = [driver.add(prompt, NUM_TOKENS) for prompt in prompts]
    driver.run(chunk_size=15, preemptions=1)
    others = []
    for request, prompt in zip(requests, prompts, strict=True):
        assert_same_but_for_ties(request.output, *generate(path, tuple(prompt), NUM_TOKENS))
        others.append(generate(plain, tuple(prompt), NUM_TOKENS)[0])
    assert ([list(request.output) for request in requests] == others) == (share == 1.0)
    generate.cache_clear()
