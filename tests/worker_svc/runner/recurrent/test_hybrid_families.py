"""Every family with recurrent layers, against transformers' own generation."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.worker_svc.runner.reference import assert_greedy, make_prompts, make_runner
from tests.worker_svc.runner.runner_harness import Driver
from tools.hybrid_families import HYBRID_PRESETS
from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.cpu.recurrent import (
    delta_net,
    kimi_delta,
    selective_scan,
    short_convolution,
    state_space,
)
from worker_svc.runner.cpu.recurrent.native_layer import NativeLayer
from worker_svc.runner.recurrent.layers import RecurrentForward
from worker_svc.runner.torch_runner import TorchRunner

ModelDir = Callable[[str], Path]
ARE_NATIVE = native_kernels() is not None
"""Whether recurrent states are a native kernel's work."""
NUM_TOKENS = 24
LENGTHS = (1, 2, 3, 5, 17, 63, 64, 65, 150)


@pytest.mark.parametrize("preset", HYBRID_PRESETS)
def test_greedy_output_equals_generate(
    model_dir: ModelDir, preset: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SG1, SG4. Prompts in chunks beside decode rows, shorter and longer than kernels and scans, preempted four times;
    states are garbage where nothing was written."""
    path = model_dir(preset)
    with caplog.at_level(logging.INFO):
        runner = make_runner(path)
    assert not [r for r in caplog.records if "without fused modules" in r.message]
    assert ("recurrent states are torch's work" in caplog.text) == (not ARE_NATIVE)
    check_outputs(runner, path)


@pytest.mark.skipif(not ARE_NATIVE, reason="there are no kernels")
@pytest.mark.parametrize("preset", HYBRID_PRESETS)
def test_greedy_output_without_native_states(
    model_dir: ModelDir, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SG1. As on machines that have no kernels."""
    monkeypatch.setattr(delta_net, "FAMILIES", {})
    for module in (kimi_delta, selective_scan, short_convolution, state_space):
        monkeypatch.setattr(module, "FAMILIES", ())
    runner = make_runner(model_dir(preset))
    assert not any(isinstance(module, NativeLayer) for module in runner.model.module.modules())
    check_outputs(runner, model_dir(preset))


def check_outputs(runner: TorchRunner, path: Path) -> None:
    """Prompts of all lengths, preempted four times, give the tokens of transformers' own generation."""
    driver = Driver(runner)
    requests = [driver.add(prompt, NUM_TOKENS) for prompt in make_prompts(LENGTHS)]
    driver.run(chunk_size=40, preemptions=4)
    near_ties = sum(
        assert_greedy(request.output, path, prompt, NUM_TOKENS)
        for request, prompt in zip(requests, make_prompts(LENGTHS), strict=True)
    )
    assert near_ties <= 1
    assert len({tuple(request.output) for request in requests}) == len(requests)


@pytest.mark.parametrize("preset", HYBRID_PRESETS)
def test_the_layout_says_which_layers_keep_what(model_dir: ModelDir, preset: str) -> None:
    """SG2."""
    runner = make_runner(model_dir(preset))
    model = runner.model
    kinds = model.module.config.layer_types
    recurrent = {i for i, kind in enumerate(kinds) if kind in ("conv", "linear_attention", "hybrid")}
    attending = {i for i, kind in enumerate(kinds) if kind in ("full_attention", "hybrid")}
    assert model.state_layout.layers.keys() == recurrent
    assert {i for i, shape in enumerate(model.layer_shapes) if shape.elements} == attending
    ours = [m for m in model.module.modules() if isinstance(m, NativeLayer)]
    others = [m for m in model.module.modules() if isinstance(m.forward, RecurrentForward)]
    assert len(ours) + len(others) == len(recurrent)
    for layer in model.state_layout.layers.values():
        assert layer.recurrent is None or layer.recurrent.dtype.itemsize == 4
    assert model.state_layout.bytes_per_row == sum(
        part.numel() // len(part) * part.dtype.itemsize
        for parts in runner._states.layers.values()  # type: ignore[union-attr]
        for part in parts
    )
