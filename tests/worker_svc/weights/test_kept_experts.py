"""Experts whose whole numbers stay such: from checkpoints of all kinds, and rounded at load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.worker_svc.runner.cpu.test_kept_linear import all_logits, needs_bfloat16, needs_kernels
from tests.worker_svc.runner.reference import assert_greedy, make_runner
from tests.worker_svc.runner.runner_harness import Driver
from tests.worker_svc.weights.checkpoints import EXPERTS, Encode, Twins, change_config, make_twins
from tests.worker_svc.weights.test_floats import GPT_OSS, mxfp4_experts, nvfp4
from tests.worker_svc.weights.test_int_words import AWQ, awq, gptq, gptq_settings
from worker_svc.runner.cpu.experts.code_stack import CodeStack
from worker_svc.runner.cpu.experts.fused_experts import FusedExperts
from worker_svc.runner.cpu.optimize import fuse_kept_experts
from worker_svc.runner.cpu.packed_linear import relative_error
from worker_svc.runner.model import loading
from worker_svc.runner.model.kept_weights import Quantization
from worker_svc.runner.model.loading import load_model
from worker_svc.runner.model.quantised_experts import QuantisedExperts
from worker_svc.runner.model.quantised_linear import QuantisedLinear

TOKENS = [3, 17, 90, 4, 55, 2, 31, 31, 8]
NVFP4 = {
    "quant_method": "compressed-tensors",
    "format": "nvfp4-pack-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "float", "group_size": 16, "strategy": "tensor_group"},
        }
    },
}
MIXTRAL = {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 64}
DEEPSEEK = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 0,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 32,
    "num_key_value_heads": 4,
    "head_dim": 16,
}
NUM_MATRICES = 2 * 2 * 4
"""Layers, parameters, experts."""
SCHEMES: dict[str, tuple[str, Encode, dict[str, Any], dict[str, Any], str]] = {
    "awq": ("qwen3_moe", awq(32), AWQ, EXPERTS, f"{NUM_MATRICES + 8} int4/32+"),
    "gptq": ("mixtral", gptq(8, 32, less_one=True), gptq_settings(8, 32), MIXTRAL, "int8/32+"),
    "nvfp4": ("qwen3_moe", nvfp4("weight_global_scale", is_divided=True), NVFP4, EXPERTS, "e2m1/16"),
}
"""Family, how weights are stored, what config.json says, shapes, and what a worker tells."""


@needs_kernels
@needs_bfloat16
@pytest.mark.parametrize("scheme", SCHEMES)
def test_kept_experts_give_the_logits_of_their_numbers(scheme: str, tmp_path: Path) -> None:
    """One matrix for each expert in the file, one parameter of all in the model."""
    family, encode, settings, shape, told = SCHEMES[scheme]
    names = ("_proj.weight", ".w1.weight", ".w2.weight", ".w3.weight")
    twins = make_twins(
        tmp_path, family, encode, settings, is_encoded=lambda name: name.endswith(names), **shape
    )
    assert told in compare(twins.quantised, twins.plain, Quantization.AUTO)


@needs_kernels
@needs_bfloat16
def test_kept_experts_of_gpt_oss_give_the_logits_of_their_numbers(tmp_path: Path) -> None:
    """Sinks, biases, windows, interleaved gates and ups, and the clamped activation."""
    twins = gpt_oss(tmp_path)
    assert compare(twins.quantised, twins.plain, Quantization.AUTO) == f"{NUM_MATRICES} e2m1/32"


@needs_kernels
def test_gpt_oss_in_mxfp4_answers_as_transformers_does(tmp_path: Path) -> None:
    """Greedy, in float32, with prompts longer than the window, beside transformers on its own dequantised numbers."""
    twins = gpt_oss(tmp_path)
    prompts = [[(7 * place + 3 * row) % 96 for place in range(5 + 11 * row)] for row in range(4)]
    driver = Driver(make_runner(twins.quantised))
    requests = [driver.add(prompt, 20) for prompt in prompts]
    driver.run()
    for prompt, request in zip(prompts, requests, strict=True):
        assert_greedy(request.output, twins.plain, prompt)


@needs_kernels
@needs_bfloat16
def test_few_experts_are_run_by_their_definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of each layer, when the kernel gets them: the numbers of each matrix would have to be made anew."""
    made: list[int] = []
    matrix = CodeStack.matrix
    monkeypatch.setattr(
        CodeStack, "matrix", lambda stack, expert: made.append(expert) or matrix(stack, expert)
    )
    runner = make_runner(gpt_oss(tmp_path).quantised, dtype="bfloat16")
    fused = [module for module in runner.model.module.modules() if isinstance(module, FusedExperts)]
    assert made == [1, 1, 3, 3] * len(fused), "two matrices of two experts"


@needs_kernels
def test_a_wrong_kernel_is_found_by_two_experts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = gpt_oss(tmp_path).quantised
    model = load_model(path, dtype="bfloat16", quantization=Quantization.AUTO).module
    run = FusedExperts.forward
    monkeypatch.setattr(FusedExperts, "forward", lambda *arguments: run(*arguments) * 1.05)
    fuse_kept_experts(model)
    assert not any(isinstance(module, FusedExperts) for module in model.modules())
    assert any(isinstance(module, QuantisedExperts) for module in model.modules())


@needs_kernels
@pytest.mark.parametrize("form", ["mxfp4", "awq", "int8", "int4", "none"])
def test_what_is_kept_is_counted_as_that(
    form: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is read; a model is refused by that, not by what it would be as numbers."""
    counted: list[int] = []
    monkeypatch.setattr(loading, "check_weights_fit", lambda _path, needed, *_: counted.append(needed))
    if form == "awq":
        twins = make_twins(tmp_path, "qwen3_moe", awq(32), {**AWQ, "group_size": 32}, **EXPERTS)
    else:
        twins = gpt_oss(tmp_path)
    quantization = Quantization.AUTO if form in ("mxfp4", "awq") else Quantization(form)
    path = twins.plain if form in ("int8", "int4", "none") else twins.quantised
    model = load_model(path, dtype="bfloat16", quantization=quantization).module
    held = sum(tensor.nbytes for tensor in model.parameters() if not tensor.numel() or min(tensor.stride()))
    for module in model.modules():
        if isinstance(module, QuantisedExperts):
            held += sum(stack.weight_bytes for stack in module.stacks.values())
        if isinstance(module, QuantisedLinear):
            held += sum(
                part.nbytes
                for part in (module.held.codes, module.held.scales, module.held.offsets)
                if part is not None
            )
    assert 0.97 * held <= counted[0] <= 1.4 * held


@needs_kernels
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=needs_bfloat16)])
@pytest.mark.parametrize("quantization", [Quantization.INT8, Quantization.INT4])
@pytest.mark.parametrize(
    ("family", "shape"), [("qwen3_moe", EXPERTS), ("gpt_oss", GPT_OSS), ("deepseek_v3", DEEPSEEK)]
)
def test_experts_are_rounded_at_load(
    family: str, shape: dict[str, Any], quantization: Quantization, dtype: str, tmp_path: Path
) -> None:
    twins = make_twins(tmp_path, family, lambda _name, weight: ({"weight": weight}, weight), None, **shape)
    bits = {Quantization.INT8: 8, Quantization.INT4: 4}[quantization]
    told = compare(twins.plain, twins.plain, quantization, dtype)
    count = next(
        int(part.split()[0]) for part in told.split(", ") if part.rstrip("+").endswith(f"int{bits}/32")
    )
    assert count > NUM_MATRICES


@needs_kernels
@needs_bfloat16
def test_experts_that_no_kernel_reads_are_numbers(tmp_path: Path) -> None:
    """Inputs of an expert's second matrix that are not whole pieces: of a layer one parameter is kept."""
    settings = {**AWQ, "group_size": 16}
    twins = make_twins(tmp_path, "qwen3_moe", awq(16), settings, **{**EXPERTS, "moe_intermediate_size": 48})
    assert compare(twins.quantised, twins.plain, Quantization.AUTO) == ""


def gpt_oss(folder: Path) -> Twins:
    twins = make_twins(
        folder,
        "gpt_oss",
        mxfp4_experts,
        {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
        is_encoded=lambda name: name.endswith(("experts.gate_up_proj", "experts.down_proj")),
        **GPT_OSS,
        sliding_window=8,
        layer_types=["sliding_attention", "full_attention"],
    )
    for directory in (twins.plain, twins.quantised):
        change_config(directory, eos_token_id=None)
    return twins


def compare(quantised: Path, plain: Path, quantization: Quantization, dtype: str = "bfloat16") -> str:
    """Compares logits with those of the numbers that the weights stand for; what the worker tells of its weights."""
    runner = make_runner(quantised, dtype=dtype, quantization=quantization)
    experts = [module for module in runner.model.module.modules() if isinstance(module, FusedExperts)]
    assert len(experts) == 2
    expected = load_model(plain, dtype="float32", quantization=quantization).module
    expected.set_attn_implementation("eager")
    with torch.inference_mode():
        logits = expected(input_ids=torch.tensor([TOKENS]), use_cache=False).logits[0]
    assert relative_error(all_logits(runner, TOKENS), logits) < {"float32": 1e-3, "bfloat16": 0.05}[dtype]
    return runner.model.kept
