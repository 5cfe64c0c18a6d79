"""AWQ and GPTQ against their formulas, written out: a checkpoint packed here, loaded, and compared number by number."""

from __future__ import annotations

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
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.loading import load_model

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def draw(name: str, outputs: int, inputs: int, bits: int, groups: int) -> Any:
    """Random numbers `[inputs, outputs]`, zero points and scales `[groups, outputs]`."""
    random = torch.Generator().manual_seed(len(name) * 31 + outputs)
    high = 1 << bits
    numbers = torch.randint(high, (inputs, outputs), generator=random)
    zeros = torch.randint(high, (groups, outputs), generator=random)
    scales = (torch.rand(groups, outputs, generator=random) * 0.02 + 0.001).half()
    return numbers, zeros, scales


def as_int32(words: torch.Tensor) -> torch.Tensor:
    """Unsigned 32 bits in int64 as the same bits in int32."""
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def pack_awq(numbers: torch.Tensor) -> torch.Tensor:
    rows, columns = numbers.shape
    words = torch.zeros(rows, columns // 8, dtype=torch.int64)
    for word in range(columns // 8):
        for place, column in enumerate(AWQ_ORDER):
            words[:, word] |= numbers[:, word * 8 + column] << 4 * place
    return as_int32(words)


def pack_rows(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """GPTQ: along the first dimension, bit by bit, the lowest bits of the first word first."""
    rows, columns = numbers.shape
    words = torch.zeros(rows * bits // 32, columns, dtype=torch.int64)
    for row in range(rows):
        for bit in range(bits):
            place = row * bits + bit
            words[place // 32] |= (numbers[row] >> bit & 1) << place % 32
    return as_int32(words)


def awq(group_size: int) -> Encode:
    def encode(name: str, weight: torch.Tensor) -> Any:
        outputs, inputs = weight.shape
        numbers, zeros, scales = draw(name, outputs, inputs, 4, inputs // group_size)
        group = torch.arange(inputs) // group_size
        meant = (numbers - zeros[group]) * scales.float()[group]
        parts = {"qweight": pack_awq(numbers), "qzeros": pack_awq(zeros), "scales": scales}
        return parts, meant.T.contiguous()

    return encode


def gptq(bits: int, group_size: int, *, less_one: bool, is_ordered: bool = False) -> Encode:
    def encode(name: str, weight: torch.Tensor) -> Any:
        outputs, inputs = weight.shape
        length = inputs if group_size == -1 else group_size
        numbers, zeros, scales = draw(name, outputs, inputs, bits, inputs // length)
        zeros = zeros.clamp_min(int(less_one))
        group = torch.arange(inputs) // length
        if is_ordered:
            group = group[torch.randperm(inputs, generator=torch.Generator().manual_seed(7))]
        meant = (numbers - zeros[group]) * scales.float()[group]
        parts = {
            "qweight": pack_rows(numbers, bits),
            "qzeros": pack_rows((zeros - int(less_one)).T, bits).T,
            "scales": scales,
            "g_idx": group.to(torch.int32),
        }
        return parts, meant.T.contiguous()

    return encode


def gptq_settings(bits: int, group_size: int, **more: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": bits, "group_size": group_size, "sym": False, **more}


@pytest.mark.parametrize("group_size", [32, 128])
def test_awq_gives_what_its_formula_says(tmp_path: Path, group_size: int) -> None:
    settings = AWQ | {"group_size": group_size}
    assert_equal_models(make_twins(tmp_path, "llama", awq(group_size), settings), 1e-6)


@pytest.mark.parametrize(("bits", "group_size"), [(2, 32), (3, 32), (4, 32), (4, 128), (4, -1), (8, 64)])
@pytest.mark.parametrize("version", ["gptq", "gptq_v2"])
def test_gptq_gives_what_its_formula_says(tmp_path: Path, bits: int, group_size: int, version: str) -> None:
    """The first version stores zero points less one."""
    encode = gptq(bits, group_size, less_one=version == "gptq")
    settings = gptq_settings(bits, group_size, checkpoint_format=version)
    assert_equal_models(make_twins(tmp_path, "llama", encode, settings), 1e-6)


def test_gptq_with_act_order_takes_each_input_from_its_group(tmp_path: Path) -> None:
    encode = gptq(4, 32, less_one=True, is_ordered=True)
    settings = gptq_settings(4, 32, desc_act=True)
    assert_equal_models(make_twins(tmp_path, "qwen3", encode, settings), 1e-6)


@pytest.mark.parametrize("encode", [awq(32), gptq(4, 32, less_one=True)], ids=["awq", "gptq"])
def test_experts_are_merged_as_plain_ones_are(tmp_path: Path, encode: Encode) -> None:
    settings = AWQ if encode.__qualname__.startswith("awq") else gptq_settings(4, 32)
    assert_equal_models(make_twins(tmp_path, "qwen3_moe", encode, settings, **EXPERTS), 1e-6)


def test_what_is_stored_decides_not_what_is_listed(tmp_path: Path) -> None:
    """modules_to_not_convert may name what is quantised all the same, and leave out what is not."""
    settings = AWQ | {"modules_to_not_convert": ["self_attn"]}
    twins = make_twins(
        tmp_path,
        "llama",
        awq(32),
        settings,
        is_encoded=lambda name: name.endswith(("q_proj.weight", "up_proj.weight")),
    )
    assert_equal_models(twins, 1e-6)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"q_proj.scales": None}, r"lacks model\.layers\.\d\.self_attn\.q_proj\.scales"),
        (
            {"q_proj.scales": torch.full((4, 128), torch.nan)},
            r"q_proj\.scales has a scale that is not finite",
        ),
        ({"q_proj.scales": torch.ones(3, 128)}, r"q_proj\.scales is \[3, 128\], where \[4, 128\]"),
        ({"q_proj.scales": torch.ones(4, 64)}, r"q_proj\.scales has 64 outputs"),
        ({"q_proj.qzeros": torch.ones(4, 16)}, r"q_proj\.qzeros is float32, where int32"),
        ({"q_proj.qzeros": torch.ones(4, 8, dtype=torch.int32)}, r"q_proj\.qzeros is \[4, 8\]"),
        (
            {"q_proj.qweight": torch.ones(100, 16, dtype=torch.int32)},
            r"q_proj\.qweight: groups of 32 do not",
        ),
        (
            {"q_proj.qweight": torch.ones(16, dtype=torch.int32)},
            r"q_proj\.qweight is \[16\], where a matrix",
        ),
        ({"q_proj.qweight": torch.ones(0, 16, dtype=torch.int32)}, r"q_proj\.qweight is \[0, 16\]"),
    ],
)
def test_a_broken_tensor_is_named(tmp_path: Path, broken: dict[str, Any], words: str) -> None:
    twins = make_twins(tmp_path, "llama", awq(32), AWQ)
    change_tensors(twins.quantised, broken)
    with pytest.raises(ModelLoadError, match=words):
        load_model(twins.quantised, dtype="float32")


def test_groups_out_of_range_are_named(tmp_path: Path) -> None:
    twins = make_twins(tmp_path, "llama", gptq(4, 32, less_one=True), gptq_settings(4, 32))
    change_tensors(twins.quantised, {"q_proj.g_idx": torch.full((128,), 4, dtype=torch.int32)})
    with pytest.raises(ModelLoadError, match=r"q_proj\.g_idx names a group that is none of the 4"):
        load_model(twins.quantised, dtype="float32")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (AWQ | {"version": "gemv"}, "AWQ's layout 'gemv' is not served"),
        (AWQ | {"bits": 8}, "AWQ with bits 8"),
        (AWQ | {"group_size": "128"}, "group_size is '128'"),
        (gptq_settings(5, 32), "GPTQ with bits 5"),
        (gptq_settings(4, 32, checkpoint_format="marlin"), "GPTQ's layout 'marlin'"),
        ({"quant_method": "aqlm"}, "quantised by 'aqlm' are not served"),
        ({}, "an unnamed method"),
        ([], "not a JSON object"),
    ],
)
def test_a_scheme_that_is_not_served_is_refused_by_name(tmp_path: Path, settings: Any, words: str) -> None:
    twins = make_twins(tmp_path, "llama", awq(32), AWQ)
    change_config(twins.quantised, quantization_config=settings)
    with pytest.raises(ModelLoadError, match=words):
        load_model(twins.quantised, dtype="float32")


def test_a_checkpoint_without_what_its_config_says_is_refused(tmp_path: Path) -> None:
    twins = make_twins(tmp_path, "llama", awq(32), AWQ)
    change_config(twins.plain, quantization_config=AWQ)
    with pytest.raises(ModelLoadError, match="is said to be AWQ int4, groups of 32, but has no weight"):
        load_model(twins.plain, dtype="float32")
