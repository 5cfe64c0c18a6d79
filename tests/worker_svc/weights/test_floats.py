"""Weights in 8-bit and 4-bit floating point, against transformers' decoders where it has them, else formulas."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.integrations.finegrained_fp8 import _dequantize_fp8_weight
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from tests.worker_svc.weights.checkpoints import (
    EXPERTS,
    SHAPE,
    Encode,
    assert_equal_models,
    change_tensors,
    make_twins,
)
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.loading import load_model

FP8 = torch.float8_e4m3fn
BLOCK = [64, 96]
"""Does not divide the lengths of the weights."""
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
GPT_OSS = {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 64}


def fp8_blocks(_name: str, weight: torch.Tensor) -> Any:
    grid = [-(-length // block) for length, block in zip(weight.shape, BLOCK, strict=True)]
    scales = torch.rand(grid) * 0.01 + 0.001
    stored = (weight * 100).to(FP8)
    padded = torch.zeros([n * block for n, block in zip(grid, BLOCK, strict=True)])
    padded[: weight.shape[0], : weight.shape[1]] = stored.float()
    meant: Any = _dequantize_fp8_weight(padded, scales, BLOCK, torch.float32)
    return {"weight": stored, "weight_scale_inv": scales}, meant[: weight.shape[0], : weight.shape[1]].clone()


def fp8_rows(_name: str, weight: torch.Tensor) -> Any:
    scales = torch.rand(weight.shape[0], 1) * 0.01 + 0.001
    stored = (weight * 100).to(FP8)
    parts = {"weight": stored, "weight_scale": scales, "input_scale": torch.ones(1)}
    return parts, stored.float() * scales


def fp8_tensor(_name: str, weight: torch.Tensor) -> Any:
    stored, scale = (weight * 100).to(FP8), torch.tensor(0.0123)
    parts = {
        "weight": stored,
        "weight_scale": scale,
        "input_scale": torch.tensor(1.0),
        "k_scale": torch.ones(1),
    }
    return parts, stored.float() * scale


FP8_BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": BLOCK}
FP8_TENSOR = {"quant_method": "fp8", "activation_scheme": "static"}


@pytest.mark.parametrize(
    ("encode", "settings"),
    [
        (fp8_blocks, FP8_BLOCKS),
        (fp8_tensor, FP8_TENSOR),
        (fp8_tensor, {"quant_method": "modelopt", "quant_algo": "FP8"}),
        (fp8_rows, {"quant_method": "fbgemm_fp8"}),
    ],
    ids=["blocks", "tensor", "modelopt", "fbgemm"],
)
@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_fp8(tmp_path: Path, encode: Encode, settings: Any, family: str) -> None:
    shape: Any = EXPERTS if family == "qwen3_moe" else {}
    assert_equal_models(make_twins(tmp_path, family, encode, settings, **shape), 1e-6)


def test_what_happens_to_activations_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    twins = make_twins(tmp_path, "llama", fp8_tensor, FP8_TENSOR)
    with caplog.at_level(logging.INFO):
        load_model(twins.quantised, dtype="float32")
    assert "FP8" in caplog.text
    assert "meant for statically quantised activations" in caplog.text


def mxfp4_experts(_name: str, weight: torch.Tensor) -> Any:
    """`[experts, inputs, outputs]`, stored the other way round."""
    random = torch.Generator().manual_seed(3)
    experts, inputs, outputs = weight.shape
    lengths = experts, outputs, inputs // 32, 16
    blocks = torch.randint(256, lengths, dtype=torch.uint8, generator=random)
    scales = torch.randint(110, 125, lengths[:-1], dtype=torch.uint8, generator=random)
    return {"_blocks": blocks, "_scales": scales}, convert_moe_packed_tensors(
        blocks, scales, dtype=torch.float32
    )


def test_mxfp4_of_gpt_oss(tmp_path: Path) -> None:
    """Gate and up stay interleaved, as transformers' own parameter has them."""
    twins = make_twins(
        tmp_path,
        "gpt_oss",
        mxfp4_experts,
        {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
        is_encoded=lambda name: name.endswith(("experts.gate_up_proj", "experts.down_proj")),
        **GPT_OSS,
    )
    assert_equal_models(twins)


def nvfp4(common: str, *, is_divided: bool) -> Encode:
    """`[outputs, inputs]` by the formula: number * scale * common scale, or divided by it."""

    def encode(name: str, weight: torch.Tensor) -> Any:
        random = torch.Generator().manual_seed(len(name))
        outputs, inputs = weight.shape
        codes = torch.randint(16, (outputs, inputs), generator=random)
        scales = (torch.rand(outputs, inputs // 16, generator=random) * 10).to(FP8)
        whole = torch.tensor([300.0] if is_divided else 1 / 300)
        factor = scales.float() / whole if is_divided else scales.float() * whole
        meant = E2M1[codes] * factor.repeat_interleave(16, dim=1)
        packed = (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8)
        stored = "weight_packed" if is_divided else "weight"
        return {stored: packed, "weight_scale": scales, common: whole, "input_scale": torch.ones(1)}, meant

    return encode


MODELOPT = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16}}


@pytest.mark.parametrize("place", ["config.json", "hf_quant_config.json"])
def test_nvfp4_of_modelopt_multiplies(tmp_path: Path, place: str) -> None:
    is_beside = place == "hf_quant_config.json"
    twins = make_twins(
        tmp_path,
        "llama",
        nvfp4("weight_scale_2", is_divided=False),
        None if is_beside else {"quant_method": "modelopt", "quant_algo": "NVFP4"},
        files={place: MODELOPT} if is_beside else None,
    )
    assert_equal_models(twins, 1e-6)


def test_nvfp4_of_compressed_tensors_divides(tmp_path: Path) -> None:
    weights = {"num_bits": 4, "type": "float", "group_size": 16, "strategy": "tensor_group"}
    settings = {
        "quant_method": "compressed-tensors",
        "format": "nvfp4-pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": ["lm_head"],
    }
    twins = make_twins(tmp_path, "llama", nvfp4("weight_global_scale", is_divided=True), settings)
    assert_equal_models(twins, 1e-6)


def bnb(*, is_nested: bool) -> Encode:
    """NF4 by the formula: number by its code in the table, times the scale of its block of 64."""

    def encode(name: str, weight: torch.Tensor) -> Any:
        random = torch.Generator().manual_seed(len(name))
        outputs, inputs = weight.shape
        table = torch.linspace(-1, 1, 16) ** 3
        codes = torch.randint(16, (outputs * inputs,), generator=random)
        num_blocks = outputs * inputs // 64
        state: dict[str, Any] = {
            "quant_type": "nf4",
            "blocksize": 64,
            "shape": [outputs, inputs],
            "dtype": "bfloat16",
        }
        parts = {
            "weight": (codes[::2] << 4 | codes[1::2]).to(torch.uint8)[:, None],
            "weight.quant_map": table,
        }
        if is_nested:
            state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.05}
            inner = torch.linspace(-1, 1, 256)
            outer = torch.rand(-(-num_blocks // 256), generator=random) * 0.04
            stored = torch.randint(256, (num_blocks,), generator=random)
            scales = inner[stored] * outer[torch.arange(num_blocks) // 256] + 0.05
            parts |= {"weight.absmax": stored.to(torch.uint8)}
            parts |= {"weight.nested_absmax": outer, "weight.nested_quant_map": inner}
        else:
            scales = torch.rand(num_blocks, generator=random) * 0.1
            parts |= {"weight.absmax": scales}
        told = torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)
        meant = (table[codes] * scales.repeat_interleave(64)).view(outputs, inputs)
        return parts | {"weight.quant_state.bitsandbytes__nf4": told}, meant

    return encode


def bnb_int8(_name: str, weight: torch.Tensor) -> Any:
    stored = torch.randint(
        -127, 128, weight.shape, dtype=torch.int8, generator=torch.Generator().manual_seed(1)
    )
    scales = torch.rand(weight.shape[0]) * 0.1
    parts = {"weight": stored, "SCB": scales, "weight_format": torch.zeros((), dtype=torch.uint8)}
    return parts, stored.float() * (scales[:, None] / 127)


BNB = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}


@pytest.mark.parametrize("is_nested", [False, True])
def test_bitsandbytes_nf4(tmp_path: Path, is_nested: bool) -> None:
    assert_equal_models(make_twins(tmp_path, "llama", bnb(is_nested=is_nested), BNB), 1e-6)


def test_bitsandbytes_int8(tmp_path: Path) -> None:
    settings = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    assert_equal_models(make_twins(tmp_path, "llama", bnb_int8, settings), 1e-6)


HIDDEN = SHAPE["hidden_size"]


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"q_proj.weight_scale_inv": None}, r"lacks model.*q_proj\.weight_scale_inv"),
        (
            {"q_proj.weight_scale_inv": torch.ones(3, 2)},
            r"q_proj\.weight_scale_inv is \[3, 2\], which does not fit",
        ),
        (
            {"q_proj.weight_scale_inv": torch.full((2, 2), torch.inf)},
            r"q_proj\.weight_scale_inv has a scale that is",
        ),
        (
            {"q_proj.weight_scale_inv": torch.ones(2, 2, dtype=torch.int64)},
            r"weight_scale_inv is int64, where",
        ),
        (
            {"q_proj.weight": torch.ones(128, 128, dtype=torch.int8)},
            r"q_proj\.weight is int8, but has no scales",
        ),
    ],
)
def test_a_broken_tensor_is_named(tmp_path: Path, broken: dict[str, Any], words: str) -> None:
    twins = make_twins(tmp_path, "llama", fp8_blocks, FP8_BLOCKS)
    change_tensors(twins.quantised, broken)
    with pytest.raises(ModelLoadError, match=words):
        load_model(twins.quantised, dtype="float32")


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"weight.quant_state.bitsandbytes__nf4": torch.ones(9, dtype=torch.uint8)}, "does not tell shape"),
        ({"q_proj.weight.absmax": torch.ones(9)}, r"q_proj\.weight\.absmax is \[9\]"),
        ({"q_proj.weight": torch.ones(9, 1, dtype=torch.uint8)}, r"q_proj\.weight has 9 bytes, not 8192"),
    ],
)
def test_a_broken_part_of_bitsandbytes_is_named(tmp_path: Path, broken: dict[str, Any], words: str) -> None:
    twins = make_twins(tmp_path, "llama", bnb(is_nested=False), BNB)
    change_tensors(twins.quantised, broken)
    with pytest.raises(ModelLoadError, match=words):
        load_model(twins.quantised, dtype="float32")


def test_a_count_that_the_file_cannot_hold_takes_no_memory(tmp_path: Path) -> None:
    twins = make_twins(tmp_path, "llama", bnb(is_nested=False), BNB)
    told = {"blocksize": 64, "shape": [1 << 40, 1 << 20]}
    state = torch.tensor(list(json.dumps(told).encode()), dtype=torch.uint8)
    change_tensors(twins.quantised, {"q_proj.weight.quant_state.bitsandbytes__nf4": state})
    with pytest.raises(ModelLoadError, match=r"q_proj\.weight has 8192 bytes"):
        load_model(twins.quantised, dtype="float32")
