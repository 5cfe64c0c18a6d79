"""Products with weights of 4 and 8 bits: what they compute, from the kernel to a whole model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from transformers import AutoModelForCausalLM, GlmConfig, PreTrainedConfig, Qwen2Config

from signalbox.errors import StartupError
from tests.worker_svc.runner.reference import make_prompts, make_runner
from tests.worker_svc.runner.runner_harness import Driver
from tools.random_heads import TINY_ENCODER
from worker_svc import runner_factory
from worker_svc.config import WorkerSettings
from worker_svc.runner import torch_runner
from worker_svc.runner.attention import attention
from worker_svc.runner.attention.attention import PagedBatch, native_kernels
from worker_svc.runner.cpu.decoder import FusedDecoder
from worker_svc.runner.cpu.experts.order import gate_up_order
from worker_svc.runner.cpu.flags import BFLOAT16_CPU_FLAGS, cpu_flags
from worker_svc.runner.cpu.fused import FusedAttention, FusedMLP
from worker_svc.runner.cpu.kept_linear import KeptLinear, join_matrices
from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.runner.cpu.packed_codes import PackedCodes
from worker_svc.runner.cpu.packed_linear import PackingError, relative_error
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.kept_weights import Quantization
from worker_svc.runner.model.loading import load_model
from worker_svc.runner.model.quantised_linear import QuantisedLinear
from worker_svc.weights.held import hold
from worker_svc.weights.quantised import QuantisedMatrix
from worker_svc.weights.rounding import LARGEST_ROW_CODE, round_rows

ModelDir = Callable[[str], Path]
INPUTS = 384
ROWS = (1, 2, 3, 7, 8, 9, 33)
MOST_ROWS = 143
"""More than pass the same unpacked codes."""
FORMATS = [
    (bits, group, has_offsets, is_half, False)
    for bits, group in ((4, 32), (4, 64), (4, 128), (4, INPUTS), (8, 16), (8, 32), (8, 128), (8, INPUTS))
    for has_offsets in (False, True)
    for is_half in (True, False)
]
FORMATS += [(4, group, has_offsets, True, True) for group in (16, 32, 64) for has_offsets in (False, True)]
"""Bits, inputs of a group, offsets, whether the scales are numbers of float16, and whether codes are E2M1's."""
HALF_STEP = {torch.float32: 2e-6, torch.bfloat16: 2.0**-8}
needs_kernels = pytest.mark.skipif(native_kernels() is None, reason="there is no C++ compiler")
needs_bfloat16 = pytest.mark.skipif(
    not BFLOAT16_CPU_FLAGS & cpu_flags(), reason="bfloat16 is emulated on this CPU"
)


def make_matrix(
    outputs: int,
    bits: int,
    group: int,
    has_offsets: bool = False,
    is_half: bool = True,
    inputs: int = INPUTS,
    *,
    is_e2m1: bool = False,
) -> QuantisedMatrix:
    generator = torch.Generator().manual_seed(outputs + bits + group)
    least = -(1 << bits - 1)
    codes = torch.randint(least, -least, (outputs, inputs), dtype=torch.int8, generator=generator)
    numbers = [0.02 * torch.randn(outputs, inputs // group, generator=generator) for _ in range(2)]
    scales, offsets = (each.half().float() if is_half else each for each in numbers)
    return QuantisedMatrix(codes, scales, offsets if has_offsets else None, bits, group, is_e2m1)


def random_rows(rows: int, dtype: torch.dtype, inputs: int = INPUTS) -> torch.Tensor:
    return torch.randn(rows, inputs, generator=torch.Generator().manual_seed(rows)).to(dtype)


@pytest.mark.parametrize("dtype", HALF_STEP)
@pytest.mark.parametrize("outputs", [64, 100])
@pytest.mark.parametrize(("bits", "group", "has_offsets", "is_half", "is_e2m1"), FORMATS)
def test_product_equals_float64_of_rounded_rows(
    kernels: Kernels,
    bits: int,
    group: int,
    has_offsets: bool,
    is_half: bool,
    is_e2m1: bool,
    outputs: int,
    dtype: torch.dtype,
) -> None:
    """Rows are rounded as `round_rows` says; one code may differ where two machines round a tie."""
    matrix = make_matrix(outputs, bits, group, has_offsets, is_half, is_e2m1=is_e2m1)
    bias = torch.randn(outputs, generator=torch.Generator().manual_seed(1))
    packed = PackedCodes(matrix, bias)
    for rows in ROWS:
        x = random_rows(rows, dtype)
        expected = round_rows(x).double() @ matrix.dequantise().double().T + bias.double()
        actual = kernels.linear_quantised(x, packed.call)
        assert actual.dtype == dtype
        one_code = x.float().abs().max() / LARGEST_ROW_CODE * matrix.dequantise().abs().max()
        allowed = HALF_STEP[dtype] * (expected.abs() + expected.std()) + one_code
        assert ((actual.double() - expected).abs() <= allowed).all()


@pytest.mark.parametrize(("bits", "group", "has_offsets", "is_half", "is_e2m1"), FORMATS)
def test_what_was_packed_can_be_read_again(
    bits: int, group: int, has_offsets: bool, is_half: bool, is_e2m1: bool
) -> None:
    matrix = make_matrix(100, bits, group, has_offsets, is_half, is_e2m1=is_e2m1)
    again = PackedCodes(matrix).matrix()
    assert (again.form, again.shape) == (matrix.form, matrix.shape)
    assert torch.equal(again.dequantise(), matrix.dequantise())


@pytest.mark.parametrize(("bits", "group", "has_offsets", "is_half", "is_e2m1"), FORMATS)
def test_a_row_depends_neither_on_the_others_nor_on_threads(
    kernels: Kernels, bits: int, group: int, has_offsets: bool, is_half: bool, is_e2m1: bool
) -> None:
    """Y2: few rows and many take different routines. 100 columns are three tiles and a part of one."""
    matrix = make_matrix(100, bits, group, has_offsets, is_half, is_e2m1=is_e2m1)
    packed = PackedCodes(matrix, torch.randn(100, generator=torch.Generator().manual_seed(2)))
    x = random_rows(MOST_ROWS, torch.float32)
    alone = torch.cat([kernels.linear_quantised(row[None], packed.call) for row in x])
    for number, rows in enumerate((2, 3, 4, 7, 8, 11, 12, 15, 16, 41, 127, 128, 129, MOST_ROWS)):
        first = number % (MOST_ROWS - rows + 1)
        torch.set_num_threads(1 + number % 3)
        try:
            some = kernels.linear_quantised(x[first : first + rows].contiguous(), packed.call)
        finally:
            torch.set_num_threads(1)
        assert torch.equal(some, alone[first : first + rows]), rows


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_found_in_its_own_row(kernels: Kernels, bad: float) -> None:
    """Rounded a NaN would be a number like others."""
    packed = PackedCodes(make_matrix(64, 8, 32))
    x = random_rows(3, torch.float32)
    x[1, 40] = bad
    finite = kernels.linear_quantised(x, packed.call).isfinite()
    assert finite[0].all() and finite[2].all() and not finite[1].any()


def test_rows_of_zeros_give_zeros(kernels: Kernels) -> None:
    packed = PackedCodes(make_matrix(64, 4, 32, True))
    assert not kernels.linear_quantised(torch.zeros(2, INPUTS), packed.call).any()


def test_joined_matrices_have_the_numbers_that_they_had() -> None:
    """Q4_K_M keeps queries in 4 bits and values in 6, with other groups and without offsets."""
    matrices = [make_matrix(32, 4, 32, True), make_matrix(16, 8, 16), make_matrix(48, 8, 128)]
    joined = join_matrices(matrices)
    assert (joined.bits, joined.group_size) == (8, 16)
    assert torch.equal(joined.dequantise(), torch.cat([matrix.dequantise() for matrix in matrices]))


def test_what_joins_e2m1_with_whole_numbers_is_whole_numbers() -> None:
    matrices = [make_matrix(32, 4, 32, is_e2m1=True), make_matrix(16, 4, 16, is_e2m1=True)]
    joined = join_matrices(matrices)
    assert joined.is_e2m1 and (joined.bits, joined.group_size) == (4, 16)
    assert torch.equal(joined.dequantise(), torch.cat([matrix.dequantise() for matrix in matrices]))
    mixed = join_matrices([matrices[0], make_matrix(16, 4, 64)])
    assert not mixed.is_e2m1 and (mixed.bits, mixed.group_size) == (8, 32)
    assert torch.equal(mixed.dequantise()[:32], matrices[0].dequantise())


def test_rows_of_a_matrix_are_chosen_with_their_scales() -> None:
    matrix = make_matrix(96, 4, 32, True)
    order = gate_up_order(48, is_concatenated=True)
    chosen = matrix.with_rows(lambda rows: rows[order])
    assert torch.equal(chosen.dequantise(), matrix.dequantise()[order])


@pytest.mark.parametrize(
    ("bits", "group", "inputs"), [(4, 16, 64), (8, 24, 96), (8, 48, 48), (4, 40, 80), (8, 8, 64)]
)
def test_groups_that_the_kernel_cannot_read_are_refused(bits: int, group: int, inputs: int) -> None:
    with pytest.raises(PackingError):
        PackedCodes(make_matrix(32, bits, group, inputs=inputs))


@needs_kernels
def test_a_layer_that_packs_to_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = native_kernels()
    assert kernels is not None
    good, bad = (QuantisedLinear(hold(make_matrix(64, 4, 32)), None, torch.float32) for _ in range(2))
    KeptLinear([good], kernels)
    others = [QuantisedLinear(hold(make_matrix(rows, 8, 32, True)), None, torch.float32) for rows in (32, 48)]
    before = [linear.weight for linear in (bad, *others)]
    monkeypatch.setattr(QuantisedLinear, "forward", lambda self, x: 1.1 * (x @ self.weight.T))
    with pytest.raises(PackingError, match="other results"):
        KeptLinear([bad], kernels)
    with pytest.raises(PackingError, match="other results"):
        KeptLinear(others, kernels, torch.randperm(80))
    assert good.is_released
    for linear, weight in zip((bad, *others), before, strict=True):
        assert torch.equal(linear.weight, weight), "it goes on with what it had"


SIZES: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with biases whose sizes all kernels know."""
    return save_model(Qwen2Config(**SIZES), tmp_path_factory.mktemp("rounded"))


@pytest.fixture(scope="module")
def turned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that rotates neighbours, has biases, and gates and ups in one matrix."""
    config = GlmConfig(head_dim=32, attention_bias=True, pad_token_id=0, **SIZES)
    return save_model(config, tmp_path_factory.mktemp("turned"))


def save_model(config: PreTrainedConfig, folder: Path) -> Path:
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, std=0.1, mean=float("norm" in name))
    model.save_pretrained(folder)
    return folder


@needs_kernels
@pytest.mark.parametrize("quantization", [Quantization.INT8, Quantization.INT4])
@pytest.mark.parametrize(
    ("dtype", "layers"),
    [
        ("float32", (FusedAttention, FusedMLP)),
        pytest.param("bfloat16", (FusedDecoder,), marks=needs_bfloat16),
    ],
)
@pytest.mark.parametrize(("model", "kept"), [("path", 3 * 7 + 1), ("turned", 3 * 6 + 1)])
def test_a_rounded_model_gives_the_logits_of_its_rounded_weights(
    model: str,
    kept: int,
    quantization: Quantization,
    dtype: str,
    layers: tuple[type[nn.Module], ...],
    request: pytest.FixtureRequest,
) -> None:
    """With the paths of both kinds of CPU: all layers in one call, and layer by layer."""
    path: Path = request.getfixturevalue(model)
    runner = make_runner(path, dtype=dtype, quantization=quantization)
    assert runner.model.num_kept == kept
    modules = list(runner.model.module.modules())
    assert all(any(isinstance(module, layer) for module in modules) for layer in layers)
    assert not any(isinstance(module, QuantisedLinear) for module in modules)
    rounded = load_model(path, dtype="float32", quantization=quantization).module
    tokens = torch.tensor([make_prompts()[-1]])
    with torch.inference_mode():
        rounded.set_attn_implementation("eager")
        expected = rounded(input_ids=tokens, use_cache=False).logits[0]
    actual = all_logits(runner, tokens[0].tolist())
    assert relative_error(actual, expected) < {"float32": 1e-3, "bfloat16": 0.05}[dtype]


def all_logits(runner: torch_runner.TorchRunner, tokens: list[int]) -> torch.Tensor:
    """`[T, V]` of a prompt, by the model's modules on the paged cache."""
    blocks = -(-len(tokens) // runner.info.block_size)
    batch = PagedBatch(
        cache=runner._cache,
        num_decode_rows=0,
        query_starts=np.array([0, len(tokens)], np.int32),
        positions=np.arange(len(tokens), dtype=np.int32),
        block_tables=np.arange(blocks, dtype=np.int32)[None],
        device=runner.model.device,
    )
    with torch.inference_mode(), attention.running(batch):
        positions = torch.arange(len(tokens))[None]
        output = runner.model.module(
            input_ids=torch.tensor([tokens]), position_ids=positions, use_cache=False
        )
    logits: torch.Tensor = output.logits[0]
    return logits


@needs_kernels
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=needs_bfloat16)])
def test_outputs_of_a_rounded_model_do_not_depend_on_the_batch(path: Path, dtype: str) -> None:
    def outputs(prompts: list[list[int]]) -> list[list[int]]:
        driver = Driver(make_runner(path, dtype=dtype, quantization=Quantization.INT4))
        requests = [driver.add(prompt, 12) for prompt in prompts]
        driver.run()
        return [request.output for request in requests]

    prompts = make_prompts()[:5]
    assert outputs(prompts) == [outputs([prompt])[0] for prompt in prompts]


@needs_kernels
def test_float32_that_is_asked_for_is_exact(model_dir: ModelDir) -> None:
    """`auto` keeps whole numbers where a checkpoint has them, but not for float32; and rounds nothing."""
    assert make_runner(model_dir("tiny-qwen3")).model.num_kept == 0
    assert make_runner(model_dir("tiny-qwen3"), dtype="auto").model.num_kept == 0


@needs_kernels
def test_a_model_without_anything_to_round_is_refused(model_dir: ModelDir) -> None:
    """GPT-2 keeps its weights in layers of its own: int8 would round its head only."""
    with pytest.raises(ModelLoadError, match="cannot be served in int8"):
        make_runner(model_dir("tiny-gpt2"), quantization=Quantization.INT8)


def test_an_encoder_is_not_rounded(tmp_path: Path) -> None:
    transformers.BertModel(transformers.BertConfig(**TINY_ENCODER)).save_pretrained(tmp_path)
    with pytest.raises(StartupError, match="--quantization int8 is not served for encoders"):
        runner_factory.make_runner(WorkerSettings(model=tmp_path, quantization="int8"))


def test_without_kernels_rounding_is_refused(model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_runner, "native_kernels", lambda: None)
    with pytest.raises(ModelLoadError, match="int4 needs the native kernels"):
        make_runner(model_dir("tiny-qwen3"), quantization=Quantization.INT4)


def test_the_rounding_of_rows_is_that_of_its_words() -> None:
    x = torch.tensor([[LARGEST_ROW_CODE, 0.4, 0.6, -1.5, *[0.0] * 28, *[0.0] * 32]])
    rounded: Any = round_rows(x)[0]
    assert rounded[:4].tolist() == [LARGEST_ROW_CODE, 0.0, 1.0, -2.0]
    assert not rounded[4:].any()
