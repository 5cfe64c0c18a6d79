"""Swapped modules: what they compute, what they keep in memory, and what happens when they cannot be used."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from tests.worker_svc.runner.cpu.packing import packs
from tests.worker_svc.runner.reference import make_runner
from tests.worker_svc.runner.runner_harness import Driver
from worker_svc.runner import torch_runner
from worker_svc.runner.attention import attention
from worker_svc.runner.cpu.flags import BFLOAT16_CPU_FLAGS, cpu_flags
from worker_svc.runner.cpu.fused import FusedAttention, FusedMLP, FusedNorm
from worker_svc.runner.cpu.optimize import optimize
from worker_svc.runner.cpu.packed_linear import PackedLinear, PackingError, pack
from worker_svc.runner.model.loading import load_model

ModelDir = Callable[[str], Path]
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2.0**-7}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("biases", [(False, False), (True, True), (True, False)])
def test_packed_linears_give_their_outputs_side_by_side(
    biases: tuple[bool, bool], dtype: torch.dtype
) -> None:
    if not packs(dtype):
        pytest.skip("oneDNN packs no such weights on this CPU")
    torch.manual_seed(0)
    first, second = (
        nn.Linear(48, width, bias, dtype=dtype) for width, bias in zip((20, 7), biases, strict=True)
    )
    packed = pack(first, second)
    for rows in (1, 2, 33):
        x = torch.randn(1, rows, 48).to(dtype)
        expected = torch.cat([layer.double()(x.double()) for layer in (first, second)], dim=-1)
        assert packed(x).shape == (1, rows, 27)
        assert (packed(x).double() - expected).abs().max() < TOLERANCES[dtype] * expected.abs().max()
        first.to(dtype), second.to(dtype)


@pytest.mark.parametrize("shape", [(512, 1024), (1024, 512), (3072, 512), (512, 1536), (32000, 512)], ids=str)
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_packed_rows_do_not_depend_on_each_other(shape: tuple[int, int], dtype: torch.dtype) -> None:
    """Bit for bit, from one row to many: a property of the CPU's matrix routines, relied on and so tested."""
    if dtype == torch.bfloat16 and not BFLOAT16_CPU_FLAGS & cpu_flags():
        pytest.skip("bfloat16 is emulated on this CPU")
    torch.manual_seed(1)
    linear = PackedLinear(torch.randn(shape).to(dtype), None)
    x = torch.randn(70, shape[1]).to(dtype)
    whole = linear(x)
    for rows in (1, 2, 3, 8, 31, 64):
        assert torch.equal(linear(x[:rows]), whole[:rows])
        assert torch.equal(linear(x[70 - rows :]), whole[70 - rows :])


def test_weights_are_not_kept_twice(model_dir: ModelDir) -> None:
    model = load_model(model_dir("tiny-qwen3"), dtype="float32")
    optimize(model.module, model.dtype)
    matrices = [name for name, p in model.module.named_parameters() if p.dim() > 1]
    assert matrices == ["model.embed_tokens.weight"]
    assert not [m for m in model.module.modules() if isinstance(m, nn.Linear)]


@pytest.mark.skipif(attention.native_kernels() is None, reason="there is no C++ compiler")
def test_all_parts_of_a_known_model_are_swapped(model_dir: ModelDir) -> None:
    model = load_model(model_dir("tiny-qwen3"), dtype="float32")
    optimize(model.module, model.dtype)
    kinds = [type(m) for m in model.module.modules()]
    assert (kinds.count(FusedAttention), kinds.count(FusedMLP), kinds.count(FusedNorm)) == (3, 3, 7)
    assert kinds.count(PackedLinear) == 3 * 4 + 1


def greedy_output(path: Path) -> list[int]:
    driver = Driver(make_runner(path))
    request = driver.add(np.random.default_rng(0).integers(3, 512, 30).tolist(), 12)
    driver.run()
    return request.output


def test_without_kernels_linears_are_still_packed(
    model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = greedy_output(model_dir("tiny-qwen3"))
    monkeypatch.setattr(attention, "native_kernels", lambda: None)
    monkeypatch.setattr("worker_svc.runner.cpu.optimize.native_kernels", lambda: None)
    runner = make_runner(model_dir("tiny-qwen3"))
    kinds = [type(m) for m in runner.model.module.modules()]
    assert (kinds.count(FusedAttention), kinds.count(PackedLinear)) == (0, 3 * 7 + 1)
    assert greedy_output(model_dir("tiny-qwen3")) == expected


def test_wrong_fusion_is_noticed_and_undone(
    model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Here a fused attention that forgets the window."""
    expected = greedy_output(model_dir("tiny-mistral"))
    monkeypatch.setattr("worker_svc.runner.cpu.fused.window_of", lambda attn: None)
    with caplog.at_level(logging.WARNING, torch_runner.__name__):
        assert greedy_output(model_dir("tiny-mistral")) == expected
    assert ("without fused modules" in caplog.text) == (attention.native_kernels() is not None)


def test_linear_that_packs_to_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    linear = nn.Linear(32, 16)
    monkeypatch.setattr(F, "linear", lambda x, weight, bias: 2 * (x @ weight.T) + 1)
    with pytest.raises(PackingError, match="other results"):
        pack(linear)
