"""Models whose cache keeps latents: what it takes, what it holds, and what comes out of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors import safe_open
from transformers import (
    AutoModelForCausalLM,
    Glm4MoeLiteConfig,
    MiniCPM3Config,
    PreTrainedConfig,
)

from tests.worker_svc.runner.reference import assert_same_but_for_ties, generate, make_prompts, make_runner
from tests.worker_svc.runner.runner_harness import Driver
from tests.worker_svc.runner.test_invariance import LONG, is_same, run_in_chunks
from tools.make_random_model import fill_weights
from tools.tiny_families import LATENT, TINY
from worker_svc.core.batch import BlockCopy
from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.attention.kv_cache import LayerShape, bytes_per_block
from worker_svc.runner.attention.latent import AbsorbedProjections, absorbed_of
from worker_svc.runner.cpu.latent import NativeProjections
from worker_svc.runner.cpu.packed_linear import relative_error
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model import support
from worker_svc.runner.model.indexed import num_dense
from worker_svc.runner.torch_runner import TorchRunner

ModelDir = Callable[[str], Path]
KEPT = LayerShape(1, 64, 32, values_in_keys=True)
SMALL = {key: value for key, value in TINY.items() if key != "head_dim"} | LATENT | {"q_lora_rank": 32}
MINICPM = {key: value for key, value in SMALL.items() if "expert" not in key}
BIAS = "model.layers.1.mlp.gate.e_score_correction_bias"


def num_latent(runner: TorchRunner) -> int:
    return sum(absorbed_of(module) is not None for module in runner.model.module.modules())


def save(config: PreTrainedConfig, path: Path) -> Path:
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    fill_weights(model, torch.Generator().manual_seed(0))
    model.save_pretrained(path)
    return path


@pytest.mark.parametrize("preset", ["tiny-deepseek-v2", "tiny-deepseek-v3"])
def test_a_layer_keeps_a_latent_and_a_roped_key(model_dir: ModelDir, preset: str) -> None:
    """C14: 64 elements per position and layer, where keys and values of four heads are 384."""
    runner = make_runner(model_dir(preset))
    assert runner.model.layer_shapes == [KEPT] * 3
    assert bytes_per_block(runner.model.layer_shapes, 16, torch.bfloat16) == 3 * 16 * 64 * 2
    stored = [tensor for layer in runner._cache.layers for tensor in layer.stored]
    assert sum(tensor.nbytes for tensor in stored) == 256 * 3 * 4 * 64 * 4
    assert all(module.kv_b_proj is None for module in runner.model.module.modules() if absorbed_of(module))


@pytest.mark.parametrize(
    "config",
    [
        Glm4MoeLiteConfig(**SMALL, first_k_dense_replace=1, topk_group=2),
        MiniCPM3Config(**MINICPM),
    ],
    ids=lambda config: config.model_type,
)
def test_other_families_of_this_kind_do_too(tmp_path: Path, config: PreTrainedConfig) -> None:
    """That they give the logits of their own attention is checked at load."""
    runner = make_runner(save(config, tmp_path))
    assert num_latent(runner) == config.num_hidden_layers
    assert {shape.elements for shape in runner.model.layer_shapes} == {64}


@pytest.mark.parametrize("preset", ["tiny-deepseek-v32", "tiny-glm-moe-dsa"])
@pytest.mark.parametrize("longest", [None, 161])
def test_an_indexer_that_would_leave_positions_out_is_refused(
    model_dir: ModelDir, preset: str, longest: int | None
) -> None:
    """C14: this attention looks at all; `signalbox models` says with which setting it is served."""
    path = model_dir(preset)
    with pytest.raises(ModelLoadError, match=r"picks the 160 positions .* a max_model_len of at most 160"):
        make_runner(path, max_model_len=longest)
    assert "a max_model_len of at most 160" in str(support.describe(path)["problem"])


def test_what_an_indexer_picks_matters_beyond_its_number(model_dir: ModelDir) -> None:
    """C14: with 160 positions transformers gives the logits that it gives with 500; of 200 it does not."""
    path = model_dir("tiny-deepseek-v32")
    model, picks_more = (
        AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager", **changed)
        for changed in ({}, {"index_topk": 500})
    )
    tokens = torch.tensor([make_prompts((200,))[0]])
    with torch.inference_mode():
        assert is_same([model(tokens[:, :160]).logits], [picks_more(tokens[:, :160]).logits])
        assert not is_same([model(tokens).logits], [picks_more(tokens).logits])


def test_an_indexed_model_keeps_latents_and_no_indexer(model_dir: ModelDir) -> None:
    """C14: its weights are not read."""
    runner = make_runner(model_dir("tiny-glm-moe-dsa"), max_model_len=160)
    assert runner.model.layer_shapes == [KEPT] * 3 and runner.info.max_model_len == 160
    assert not [name for name, _ in runner.model.module.named_parameters() if "indexer" in name]


@pytest.mark.parametrize(
    ("kinds", "dense"), [("ddss", 2), ("ss", 0), ("dd", 2), ("sds", None), ("dsx", None)]
)
def test_layers_with_experts_come_behind_all_dense_ones(kinds: str, dense: int | None) -> None:
    """As DeepSeek V3's config says them."""
    named = [{"d": "dense", "s": "sparse"}.get(kind, kind) for kind in kinds]
    if dense is None:
        with pytest.raises(ModelLoadError, match="mlp_layer_types"):
            num_dense(named)
        return
    assert num_dense(named) == dense


def test_kimi_k2_is_deepseek_v3_by_another_name(model_dir: ModelDir, tmp_path: Path) -> None:
    """Its config.json names code of its own, which nobody runs. Experts lie one by one in the checkpoint."""
    source = model_dir("tiny-deepseek-v3")
    for file in source.iterdir():
        (tmp_path / file.name).symlink_to(file)
    config = json.loads((source / "config.json").read_text())
    auto_map = {"AutoConfig": "configuration_deepseek.DeepseekV3Config"}
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(
        json.dumps(config | {"model_type": "kimi_k2", "auto_map": auto_map})
    )
    with safe_open(source / "model.safetensors", "pt") as file:
        names = set(file.keys())
    assert {BIAS, "model.layers.2.mlp.experts.7.up_proj.weight"} <= names
    driver = Driver(make_runner(tmp_path))
    prompt = make_prompts((17,))[0]
    request = driver.add(prompt, 5)
    driver.step({request.slot: 17})
    while not request.is_finished:
        driver.step({})
    expected, logits = generate(source, tuple(prompt))
    assert assert_same_but_for_ties(request.output, expected[:5], logits) == 0


def test_what_chooses_experts_is_not_rounded(model_dir: ModelDir) -> None:
    """`e_score_correction_bias` is float32 in checkpoints, and the same in a model that is served in bfloat16."""
    path = model_dir("tiny-deepseek-v3")
    runner = make_runner(path, dtype="bfloat16")
    with safe_open(path / "model.safetensors", "pt") as file:
        expected = file.get_tensor(BIAS)
    served = runner.model.module.get_buffer(BIAS)
    assert served.dtype == torch.float32
    assert torch.equal(served, expected)
    assert not torch.equal(expected.bfloat16().float(), expected)


def test_blocks_go_to_the_host_and_back(model_dir: ModelDir) -> None:
    """C14: a copied block is the same, and a request that goes on from it makes the same tokens."""
    path = model_dir("tiny-deepseek-v2")
    runner = make_runner(path, num_blocks=40, num_host_blocks=4)
    assert [layer.keys.shape[-1] for layer in runner._cache.host_layers] == [64] * 3
    assert all(len(layer.stored) == 1 for layer in runner._cache.host_layers)
    driver = Driver(runner)
    prompt = make_prompts((9,))[0]
    request = driver.add(prompt, 8)
    driver.step({request.slot: 9})
    used = request.blocks[:2]
    before = [layer.keys[used].clone() for layer in runner._cache.layers]
    runner.copy_blocks([BlockCopy(block, False, i, True) for i, block in enumerate(used)])
    for layer in runner._cache.layers:
        layer.keys[used] = 1e4
    runner.copy_blocks([BlockCopy(i, True, block, False) for i, block in enumerate(used)])
    assert is_same([layer.keys[used] for layer in runner._cache.layers], before)
    while not request.is_finished:
        driver.step({})
    expected, logits = generate(path, tuple(prompt))
    assert_same_but_for_ties(request.output, expected[:8], logits)


def test_native_projections_are_those_of_torch() -> None:
    """Y2: and a row's are the same bit for bit beside any others; rows may lie head by head."""
    kernels = native_kernels()
    if kernels is None or not kernels.has_dot:
        pytest.skip("this machine has no bfloat16 dot product")
    torch.manual_seed(0)
    dims = {"kv_lora_rank": 96, "qk_rope_head_dim": 16, "qk_nope_head_dim": 40, "v_head_dim": 64}
    weight = torch.randn(5 * (40 + 64), 96).mul_(0.1).bfloat16()
    plain = AbsorbedProjections(SimpleNamespace(**dims, kv_b_proj=SimpleNamespace(weight=weight)))
    native = NativeProjections(plain, kernels)
    query, out = torch.randn(5, 19, 56).bfloat16().transpose(0, 1), torch.randn(19, 5, 96).bfloat16()
    queries, outputs = native.queries(query), native.outputs(out)
    assert relative_error(queries, plain.queries(query)) < 5e-3
    assert relative_error(outputs, plain.outputs(out)) < 5e-3
    for first, last in ((0, 1), (3, 12), (18, 19)):
        assert torch.equal(native.queries(query[first:last]), queries[first:last])
        assert torch.equal(native.outputs(out[first:last]), outputs[first:last])


def test_what_else_runs_does_not_matter(tmp_path: Path) -> None:
    """Y2: neither the company nor, in chunks of 16 tokens and more, where a prompt is cut; in bfloat16."""
    kernels = native_kernels()
    if kernels is None or not kernels.has_dot:
        pytest.skip("this machine has no bfloat16 dot product")
    path = save(MiniCPM3Config(**MINICPM | {"v_head_dim": 32}), tmp_path)
    runner = make_runner(path, dtype="bfloat16", block_size=16)
    assert sum(isinstance(module, NativeProjections) for module in runner.model.module.modules()) == 3
    whole = run_in_chunks(runner, [len(LONG)])
    assert is_same(run_in_chunks(runner, [33, 50, 37]), whole)
    assert is_same(run_in_chunks(runner, [60, 60], company=5), whole)


def test_expanded_keys_stay_where_they_are_made_otherwise(
    model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A layer that scales its values is served as it is."""
    module = "transformers.models.deepseek_v2.modeling_deepseek_v2.DeepseekV2Attention"
    import transformers.models.deepseek_v2.modeling_deepseek_v2 as family  # noqa: PLC0415

    plain = family.DeepseekV2Attention.expand_kv
    monkeypatch.setattr(
        f"{module}.expand_kv", lambda self, *parts: tuple(part * 2 for part in plain(self, *parts))
    )
    with caplog.at_level(logging.WARNING):
        runner = make_runner(model_dir("tiny-deepseek-v2"))
    assert num_latent(runner) == 0
    assert runner.model.layer_shapes == [LayerShape(4, 48, 48)] * 3
    assert "keeps expanded keys and values" in caplog.text
