"""compressed-tensors: packed by its own compressors, loaded here, and compared with its own decompressors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.worker_svc.weights.checkpoints import (
    EXPERTS,
    Encode,
    assert_equal_models,
    change_config,
    change_tensors,
    make_twins,
)
from tests.worker_svc.weights.references import compressed_tensors
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.loading import load_model

INT8 = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
ZEROS = INT4 | {"symmetric": False}
FLOAT4 = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True}
NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
FLOAT8 = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
ACTIVATIONS = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}


def settings_of(form: str, weights: dict[str, Any], **more: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        **more,
    }


def scales_of(weight: torch.Tensor, weights: dict[str, Any]) -> torch.Tensor:
    """As the strategy has them, so that numbers fill the range."""
    if weights["strategy"] == "tensor_group":
        largest_scale = global_scale_of(weight) * weight.view(weight.shape[0], -1, 16).abs().amax(2) / 6
        return largest_scale.to(torch.float8_e4m3fn).float()
    if weights["num_bits"] == 4 and weights["type"] == "float":
        return (
            (weight.view(weight.shape[0], -1, weights["group_size"]).abs().amax(2) / 6).log2().ceil().exp2()
        )
    largest = {"int": 2.0 ** (weights["num_bits"] - 1) - 1, "float": 448.0}[weights["type"]]
    match weights["strategy"]:
        case "tensor":
            return weight.abs().max().reshape(1) / largest
        case "channel":
            return weight.abs().amax(1, keepdim=True) / largest
        case "group":
            return weight.view(weight.shape[0], -1, weights["group_size"]).abs().amax(2) / largest
    rows, columns = weights["block_structure"]
    blocks = weight.view(weight.shape[0] // rows, rows, -1, columns)
    return blocks.abs().amax((1, 3)) / largest


def global_scale_of(weight: torch.Tensor) -> torch.Tensor:
    """`[1]` what NVFP4's scales were multiplied by, so that they fill the range of their eight bits."""
    return 448.0 * 6.0 / weight.abs().max().reshape(1)


def compressed(form: str, weights: dict[str, Any]) -> Encode:
    base, schemes = compressed_tensors("compressors"), compressed_tensors("quantization")
    scheme = schemes.QuantizationScheme(targets=["Linear"], weights=schemes.QuantizationArgs(**weights))
    compressor = base.BaseCompressor.get_value_from_registry(form)

    def encode(_name: str, weight: torch.Tensor) -> Any:
        scales = scales_of(weight, weights)
        state: dict[str, Any] = {"weight": weight, "weight_scale": scales}
        if weights["strategy"] == "tensor_group":
            state["weight_global_scale"] = global_scale_of(weight)
        if not weights.get("symmetric", True):
            random = torch.Generator().manual_seed(5)
            low, high = -(1 << weights["num_bits"] - 1), (1 << weights["num_bits"] - 1) - 1
            state["weight_zero_point"] = torch.randint(
                low, high, scales.shape, dtype=torch.int8, generator=random
            )
        stored = compressor.compress(dict(state), scheme)
        meant = compressor.decompress(dict(stored), scheme)["weight"].float()
        if weights["strategy"] == "tensor_group":
            rounded, meant = meant, nvfp4_numbers(stored, scheme.weights)
            assert float((rounded - meant).abs().max()) <= 2**-7 * float(meant.abs().max())
        return dict(stored), meant

    return encode


def nvfp4_numbers(stored: Mapping[str, torch.Tensor], args: Any) -> torch.Tensor:
    """By the parts that its decompressor is made of, in float32: that rounds to bfloat16 on its way."""
    helpers = compressed_tensors("compressors.nvfp4.helpers")
    forward = compressed_tensors("quantization.lifecycle.forward")
    packed = stored["weight_packed"]
    codes = helpers.unpack_fp4_from_uint8(packed, packed.shape[0], 2 * packed.shape[1], dtype=torch.float32)
    return forward.dequantize(
        codes,
        stored["weight_scale"].float(),
        args=args,
        dtype=torch.float32,
        global_scale=stored["weight_global_scale"],
    )


CASES = {
    "W8A8": ("int-quantized", INT8),
    "W8, a tensor": ("int-quantized", INT8 | {"strategy": "tensor"}),
    "W8 of groups with zeros": (
        "int-quantized",
        INT8 | {"strategy": "group", "group_size": 64, "symmetric": False},
    ),
    "W8A16, packed": ("pack-quantized", INT8),
    "W4A16": ("pack-quantized", INT4),
    "W4A16, groups of 128": ("pack-quantized", INT4 | {"group_size": 128}),
    "W4A16 with zeros": ("pack-quantized", ZEROS),
    "W4A16, outputs with zeros": (
        "pack-quantized",
        INT4 | {"strategy": "channel", "group_size": None, "symmetric": False},
    ),
    "W3A16": ("pack-quantized", INT4 | {"num_bits": 3}),
    "MXFP4": ("mxfp4-pack-quantized", FLOAT4),
    "NVFP4": ("nvfp4-pack-quantized", NVFP4),
    "naive": ("naive-quantized", INT8),
    "FP8": ("float-quantized", FLOAT8),
    "FP8, a tensor": ("float-quantized", FLOAT8 | {"strategy": "tensor"}),
    "FP8, blocks": ("float-quantized", FLOAT8 | {"strategy": "block", "block_structure": [32, 64]}),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_read_as_its_own_code_reads_it(tmp_path: Path, case: str) -> None:
    form, weights = CASES[case]
    twins = make_twins(tmp_path, "llama", compressed(form, weights), settings_of(form, weights))
    assert_equal_models(twins, 1e-6)


def test_experts(tmp_path: Path) -> None:
    encode = compressed("pack-quantized", INT4)
    twins = make_twins(tmp_path, "qwen3_moe", encode, settings_of("pack-quantized", INT4), **EXPERTS)
    assert_equal_models(twins, 1e-6)


def test_groups_of_modules_by_their_names(tmp_path: Path) -> None:
    """The format mixed-precision: a group for modules by a pattern, and one for all others."""
    fours, eights = compressed("pack-quantized", INT4), compressed("pack-quantized", INT8)
    groups = {
        "group_0": {"targets": ["Linear"], "weights": INT4, "format": "pack-quantized"},
        "group_1": {"targets": ["re:.*down_proj$"], "weights": INT8, "format": "pack-quantized"},
    }
    settings = settings_of("mixed-precision", INT4, config_groups=groups)

    def encode(name: str, weight: torch.Tensor) -> Any:
        return (eights if "down_proj" in name else fours)(name, weight)

    assert_equal_models(make_twins(tmp_path, "llama", encode, settings), 1e-6)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"format": "marlin-24"}, "format 'marlin-24' is not served"),
        ({"format": "sparse-24-bitmask"}, "format 'sparse-24-bitmask'"),
        ({"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparse weights of the format"),
        ({"transform_config": {"config_groups": {"u": {}}}}, "transforms of activations"),
        (
            {
                "config_groups": {
                    "group_0": {"targets": ["re:.*k_proj"], "weights": INT8},
                    "group_1": {"targets": ["re:.*v_proj"], "weights": INT4},
                }
            },
            "no group of the quantization",
        ),
        (
            {"config_groups": {"group_0": {"targets": ["Linear"], "weights": INT8}}},
            r"weight_packed is \[.*\], not",
        ),
    ],
)
def test_what_is_not_served_is_named(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    settings = settings_of("pack-quantized", INT4)
    twins = make_twins(tmp_path, "llama", compressed("pack-quantized", INT4), settings)
    change_config(twins.quantised, quantization_config=settings | changed)
    with pytest.raises(ModelLoadError, match=words):
        load_model(twins.quantised, dtype="float32")


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (
            {"q_proj.weight_scale": torch.ones(128, 3)},
            r"q_proj\.weight_scale is \[128, 3\], which does not fit",
        ),
        ({"q_proj.weight_scale": torch.ones(128, 2)}, r"with groups of 32"),
        ({"q_proj.weight_shape": None}, r"lacks .*q_proj\.weight_shape"),
        (
            {"q_proj.weight_shape": torch.tensor([1 << 50, 1 << 50])},
            r"q_proj\.weight_packed is \[128, 16\], not",
        ),
        (
            {"q_proj.weight_zero_point": torch.ones(16, 4)},
            r"q_proj\.weight_zero_point is float32, where int32",
        ),
        ({"q_proj.weight_zero_point": torch.ones(9, 4, dtype=torch.int32)}, r"zero_point is \[9, 4\]"),
        ({"q_proj.weight_packed": torch.ones(128, 16)}, r"q_proj\.weight_packed is float32, where uint8"),
        ({"q_proj.weight_packed": None}, r"lacks .*q_proj\.weight,"),
    ],
)
def test_a_broken_tensor_is_named(tmp_path: Path, broken: dict[str, Any], words: str) -> None:
    settings = settings_of("pack-quantized", ZEROS)
    twins = make_twins(tmp_path, "llama", compressed("pack-quantized", ZEROS), settings)
    change_tensors(twins.quantised, broken)
    with pytest.raises(ModelLoadError, match=words):
        load_model(twins.quantised, dtype="float32")
