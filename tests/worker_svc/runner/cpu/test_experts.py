"""Mixtures of experts in one call: what transformers computes, for any company and any number of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from tests.pairs import every_other
from tests.worker_svc.runner.cpu.test_kept_linear import needs_kernels
from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.cpu.experts.code_stack import CodeStack
from worker_svc.runner.cpu.experts.fused_experts import FusedExperts
from worker_svc.runner.cpu.experts.kinds import PARAMETERS, is_experts
from worker_svc.runner.cpu.experts.order import gate_up_order
from worker_svc.runner.cpu.experts.row_weight import RowWeight, is_router
from worker_svc.runner.cpu.optimize import optimize
from worker_svc.runner.cpu.packed_linear import relative_error
from worker_svc.runner.cpu.rounded_weights import rounding
from worker_svc.runner.model.quantised_experts import QuantisedExperts
from worker_svc.weights.quantised import E2M1_DOUBLED, QuantisedMatrix

pytestmark = needs_kernels
HIDDEN = 96
SHAPE: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "moe_intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_experts_per_tok": 3,
}
WITH_SHARED = ("qwen2_moe", "deepseek_v2", "deepseek_v3", "glm4_moe")
"""Those have an MLP for all rows beside the experts: in float32 that is oneDNN's, of which nothing is promised."""
FAMILIES: dict[str, dict[str, Any]] = {
    "qwen3_moe": {"num_experts": 8},
    "qwen2_moe": {"num_experts": 8, "shared_expert_intermediate_size": 64},
    "mixtral": {"num_local_experts": 8},
    "olmoe": {"num_experts": 8},
    "gpt_oss": {"num_local_experts": 8},
    "granitemoe": {"num_local_experts": 8},
    "deepseek_v2": {"n_routed_experts": 8, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 0},
    "deepseek_v3": {"n_routed_experts": 8, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 0},
    "glm4_moe": {"n_routed_experts": 8, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 0},
}
DTYPES = (torch.float32, torch.bfloat16)
TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 1e-2}


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    threads = torch.get_num_threads()
    with torch.inference_mode():
        yield
    torch.set_num_threads(threads)


def make_block(family: str, dtype: torch.dtype, **changed: Any) -> Any:
    """The part of a layer with router and experts."""
    config: Any = AutoConfig.for_model(family, **(SHAPE | FAMILIES[family] | changed))
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    blocks = [module for module in model.modules() if any(map(is_experts, module.children()))]
    for name, parameter in blocks[0].named_parameters():
        nn.init.normal_(parameter, std=1.0 if name.endswith("bias") else HIDDEN**-0.5)
    return blocks[0].to(dtype).eval()


def fused(block: nn.Module, dtype: torch.dtype) -> nn.ModuleList:
    return optimized(deepcopy(block), dtype)


def optimized(block: nn.Module, dtype: torch.dtype) -> nn.ModuleList:
    """The block itself, with its parts swapped."""
    copied = nn.ModuleList([block])
    optimize(copied, dtype)
    assert sum(isinstance(module, FusedExperts) for module in copied.modules()) == 1
    return copied


def run(block: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    """`[T, D]` to `[T, D]`."""
    made: Any = block(rows[None])
    return (made[0] if isinstance(made, tuple) else made)[0]


def rows_of(count: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(count, HIDDEN, generator=torch.Generator().manual_seed(count)).to(dtype)


@pytest.mark.sampled
@pytest.mark.parametrize(("family", "dtype"), every_other(FAMILIES, DTYPES))
def test_the_block_computes_what_transformers_does(family: str, dtype: torch.dtype) -> None:
    """Against float32 of the same numbers. In bfloat16 a router's near tie may be decided otherwise in a row."""
    block = make_block(family, dtype)
    rows = rows_of(40, dtype)
    actual, expected = run(fused(block, dtype)[0], rows).float(), run(block.float(), rows.float())
    errors = [relative_error(*pair) for pair in zip(actual, expected, strict=True)]
    assert sum(error > TOLERANCES[dtype] for error in errors) <= (0 if dtype == torch.float32 else 2)


@pytest.mark.sampled
@pytest.mark.parametrize(("family", "dtype"), every_other(FAMILIES, DTYPES))
def test_neither_company_nor_threads_matter(family: str, dtype: torch.dtype) -> None:
    """Y2, with the router's scores."""
    kernels = native_kernels()
    if family in WITH_SHARED and (dtype == torch.float32 or kernels is None or not kernels.has_dot):
        pytest.skip("the shared MLP is not our own")
    block: Any = fused(make_block(family, dtype), dtype)[0]
    routers = [module for module in block.modules() if isinstance(getattr(module, "weight", None), RowWeight)]
    assert len(routers) == 1 or not any(map(is_router, block.children()))
    rows = rows_of(40, dtype)
    torch.set_num_threads(1)
    whole = run(block, rows)
    for threads, sizes in ((1, (1, 7, 33)), (2, (1, 40)), (3, (9,))):
        torch.set_num_threads(threads)
        for size in sizes:
            parts = [run(block, part) for part in rows.split(size)]
            assert torch.equal(torch.cat(parts), whole), (threads, size)


def test_a_number_that_is_none_stays_with_its_row() -> None:
    """E6: the bad row is found, and the others are what they were."""
    block = fused(make_block("gpt_oss", torch.float32), torch.float32)[0]
    rows = rows_of(5, torch.float32)
    expected = run(block, rows)
    rows[2] = torch.nan
    actual = run(block, rows)
    assert bool(actual[2].isnan().all())
    kept = [0, 1, 3, 4]
    assert torch.equal(actual[kept], expected[kept])


def test_experts_of_another_kind_stay_as_they_are() -> None:
    """An activation that the kernel does not know: the model still runs."""
    block = make_block("olmoe", torch.float32)
    block.experts.act_fn = nn.ReLU()
    modules = nn.ModuleList([deepcopy(block)])
    kernels = native_kernels()
    assert kernels is not None
    optimize(modules, torch.float32)
    assert not any(isinstance(module, FusedExperts) for module in modules.modules())
    rows = rows_of(9, torch.float32)
    torch.testing.assert_close(run(modules[0], rows), run(block, rows))


def e2m1(weight: torch.Tensor) -> QuantisedMatrix:
    """The nearest numbers of MXFP4."""
    groups = weight.float().view(len(weight), -1, 32)
    scales = torch.exp2((groups.abs().amax(-1) / 12).log2().ceil())
    distances = (groups[..., None] / scales[..., None, None] - E2M1_DOUBLED).abs()
    codes = (distances.argmin(-1) - 8).to(torch.int8).flatten(1)
    return QuantisedMatrix(codes, scales, None, 4, 32, is_e2m1=True)


def mixed(weight: torch.Tensor) -> QuantisedMatrix:
    """Some in groups of 32, some with a scale for each output: not all have the same bytes."""
    matrix = rounding(native_kernels())(weight, 8)
    if weight[0, 0] <= 0:
        return matrix
    return replace(matrix, scales=matrix.scales[:, :1].contiguous(), group_size=weight.shape[1])


KEPT: dict[str, Callable[[torch.Tensor], QuantisedMatrix]] = {
    "e2m1": e2m1,
    "int4": lambda weight: rounding(native_kernels())(weight, 4),
    "int8": mixed,
}


def kept_block(family: str, dtype: torch.dtype, form: str) -> tuple[Any, Any]:
    """Experts as whole numbers, and a block with the numbers that these stand for, in float64."""
    block = make_block(family, dtype, intermediate_size=64, moe_intermediate_size=64)
    experts, stacks, numbers = block.experts, {}, {}
    for name in PARAMETERS:
        matrices = [
            KEPT[form](weight.T.contiguous() if experts.is_transposed else weight)
            for weight in getattr(experts, name).detach()
        ]
        order = None
        if name == PARAMETERS[0]:
            order = gate_up_order(64, is_concatenated=experts.is_concatenated)
        stacks[name] = CodeStack(len(matrices), matrices.__getitem__, order)
        meant = torch.stack([matrix.dequantise() for matrix in matrices]).double()
        numbers[name] = meant.transpose(1, 2) if experts.is_transposed else meant
    plain = deepcopy(block).double()
    plain.experts.config._experts_implementation = "eager"
    for name, meant in numbers.items():
        setattr(plain.experts, name, nn.Parameter(meant.contiguous()))
    block.experts = QuantisedExperts(experts, stacks, dtype)
    return block, plain


@pytest.mark.parametrize("form", KEPT)
@pytest.mark.parametrize("family", ["qwen3_moe", "gpt_oss"])
def test_kept_experts_compute_what_their_numbers_say(family: str, form: str) -> None:
    """Against float64 of those numbers, with rows that were not rounded."""
    block, plain = kept_block(family, torch.float32, form)
    rows = rows_of(40, torch.float32)
    expected = run(plain, rows.double())
    assert relative_error(run(block, rows), expected) < 1e-5
    assert relative_error(run(optimized(block, torch.float32)[0], rows), expected) < 1e-4


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", KEPT)
def test_neither_company_nor_threads_matter_to_kept_experts(form: str, dtype: torch.dtype) -> None:
    """Y2, with as many rows as many products at once need."""
    block = optimized(kept_block("gpt_oss", dtype, form)[0], dtype)[0]
    rows = rows_of(150, dtype)
    torch.set_num_threads(1)
    whole = run(block, rows)
    for threads, sizes in ((1, (1, 7, 64)), (2, (1, 150))):
        torch.set_num_threads(threads)
        for size in sizes:
            parts = [run(block, part) for part in rows.split(size)]
            assert torch.equal(torch.cat(parts), whole), (threads, size)
