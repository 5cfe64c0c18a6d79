"""Decode steps as a CUDA graph would have them: nothing from the host in between, nothing freed that a replay reads."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from triton.runtime.errors import OutOfResources

from tests.worker_svc.runner.cuda.recorded_capture import RecordedCapture
from tests.worker_svc.runner.cuda.unchecked_runner import FAMILIES, UncheckedRunner
from tests.worker_svc.runner.reference import LONGEST
from worker_svc.runner.attention import attention
from worker_svc.runner.cuda.captures import Capture, Results
from worker_svc.runner.cuda.experts import DeviceExperts, serve_experts
from worker_svc.runner.cuda.graphs import CapturedStep, DecodeStep
from worker_svc.runner.cuda.runner import CudaRunner
from worker_svc.runner.model.loading import load_model
from worker_svc.runner.triton.batch import DecodeBatch
from worker_svc.runner.triton.fused import TritonNorm, fuse

ModelDir = Callable[[str], Path]
MIXTURES = ("tiny-gpt-oss", "tiny-llama4", "tiny-qwen3-moe", "tiny-deepseek-v3")
NUM_SIZES = 3
"""Decode steps of 1, 2 and 4 rows."""


def make(model_dir: ModelDir, preset: str = "tiny-qwen3", dtype: str = "float32") -> CudaRunner:
    return UncheckedRunner(
        model_dir(preset),
        served_model_name="tiny",
        num_slots=4,
        attention="triton",
        dtype=dtype,
        num_blocks=100,
        block_size=4,
        max_model_len=LONGEST.get(preset, 64),
        threads=1,
    )


def capture(runner: CudaRunner) -> RecordedCapture:
    recorded = RecordedCapture()
    with torch.inference_mode():
        runner._steps.capture(recorded)
    return recorded


@pytest.mark.parametrize("preset", ["tiny-qwen3", "hybrid-qwen3-5"])
def test_the_step_that_is_measured_is_a_decode_step(model_dir: ModelDir, preset: str) -> None:
    """By it the memory is counted that graphs take: its kernels, results and states are those of a captured one."""
    runner = make(model_dir, preset)
    measured, served = (
        _storages(step)
        for step in (runner._lone_step(4, 4, runner.info.max_model_len), runner._steps.for_rows(4))
    )
    assert measured == served


@pytest.mark.parametrize("preset", FAMILIES)
def test_steps_of_every_family_can_be_captured(model_dir: ModelDir, preset: str) -> None:
    """Graphs of mixtures failed on the first GPU: torch copied numbers of rows to the host."""
    runner = make(model_dir, preset)
    recorded = capture(runner)
    assert runner.num_graphs == NUM_SIZES
    assert recorded.num_read > 20
    assert recorded.lost() == []


def test_mixtures_in_bfloat16_can_be_captured(model_dir: ModelDir) -> None:
    runner = make(model_dir, "tiny-llama4", "bfloat16")
    assert capture(runner).lost() == []
    assert runner.num_graphs == NUM_SIZES


def test_planted_a_captured_step_that_lets_go_of_its_items(
    model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault of the first GPU: graphs read items that had been freed, and 167 of 245 tokens were wrong."""

    def forgetful(step: CapturedStep, captured: DecodeStep, capture: Capture, _: Results | None) -> None:
        step._replay, step.results = capture(captured.run)

    monkeypatch.setattr(CapturedStep, "__init__", forgetful)
    lost = capture(make(model_dir)).lost()
    assert len([reader for reader in lost if "attend_kernel" in reader]) == NUM_SIZES, lost


def test_planted_block_tables_that_are_replaced(model_dir: ModelDir) -> None:
    runner = make(model_dir)
    recorded = capture(runner)
    runner._state.block_tables = runner._state.block_tables.clone()
    assert any("int32" in reader for reader in recorded.lost())


def test_steps_of_all_sizes_share_the_memory_of_their_results(model_dir: ModelDir) -> None:
    """27 sizes of an 8B model had 800 MB of logits."""
    runner = make(model_dir)
    assert capture(runner).lost() == []
    results = [step.results for step in runner._steps._steps.values()]
    assert [len(logits) for logits, _ in results] == [1, 2, 4]
    for part in zip(*results, strict=True):
        assert len({column.untyped_storage().data_ptr() for column in part}) == 1


def test_weights_that_were_joined_are_not_kept_twice(model_dir: ModelDir) -> None:
    """Those of Q, K and V were: 1.8 GB of an 8B model."""
    model = load_model(model_dir("tiny-qwen3"), dtype="float32", device="cpu").module
    names = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
    originals = {
        name: weakref.ref(module) for name, module in model.named_modules() if name.split(".")[-1] in names
    }
    assert len(originals) >= len(names)
    fuse(model)
    gc.collect()
    assert [name for name, module in originals.items() if module() is not None] == []


@pytest.mark.parametrize(
    ("planted", "words"),
    [
        (lambda x: x * torch.tensor(1.0), "torch.tensor makes a tensor on the host"),
        (lambda x: x + torch.zeros(1), "torch.zeros makes a tensor on the host"),
        (lambda x: x * float(x.abs().max() >= 0), "aten::item waits for the device"),
        (lambda x: x + torch.where(x > 0)[0].sum(), "aten::where waits for the device"),
        (lambda x: x.masked_scatter(x > 0, x[x > 0]), "aten::index waits for the device"),
    ],
)
def test_planted_steps_that_need_the_host(
    planted: Callable[[torch.Tensor], torch.Tensor],
    words: str,
    model_dir: ModelDir,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    forward = TritonNorm.forward
    monkeypatch.setattr(TritonNorm, "forward", lambda norm, x: planted(forward(norm, x)))
    runner = make(model_dir)
    with caplog.at_level(logging.WARNING):
        capture(runner)
    assert runner.num_graphs == 0
    assert words in caplog.text
    assert "of 1, 2, 4 rows" in caplog.text


@pytest.mark.parametrize(
    "fail",
    [lambda: torch.OutOfMemoryError("no room"), lambda: OutOfResources(400_000, 232_448, "shared memory")],
)
def test_a_size_that_cannot_be_captured_costs_its_graph_alone(
    fail: Callable[[], Exception], model_dir: ModelDir, caplog: pytest.LogCaptureFixture
) -> None:
    """What the failed capture had made is free when the next size is captured."""
    runner, recorded = make(model_dir), RecordedCapture()
    of_failed: list[weakref.ref[torch.Tensor]] = []

    def scarce(run: Callable[[], Results]) -> tuple[Callable[[], object], Results]:
        assert [tensor for tensor in of_failed if tensor() is not None] == []
        replay, results = recorded(run)
        if len(results[0]) == 4:
            of_failed.append(weakref.ref(results[0]))
            raise fail()
        return replay, results

    with torch.inference_mode(), caplog.at_level(logging.WARNING):
        runner._steps.capture(scarce)
    assert runner.num_graphs == NUM_SIZES - 1
    assert caplog.text.count("without CUDA graphs") == 1
    assert "of 4 rows" in caplog.text and str(fail()) in caplog.text
    assert of_failed
    assert isinstance(runner._steps.for_rows(3), DecodeStep)
    assert isinstance(runner._steps.for_rows(2), CapturedStep)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("preset", MIXTURES)
def test_experts_on_the_device_are_those_of_the_model(
    preset: str, dtype: torch.dtype, model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For some rows at once, and where only one row's weights fit."""
    model = load_model(model_dir(preset), dtype=str(dtype).removeprefix("torch."), device="cpu").module
    serve_experts(model)
    served = next(m.forward for m in model.modules() if isinstance(m.forward, DeviceExperts))
    width, count = _width_of(served), _num_of(served)
    torch.manual_seed(0)
    rows = torch.randn(7, width, dtype=dtype)
    top = torch.rand(7, count).topk(1 if preset == "tiny-llama4" else 2).indices
    weights = torch.rand(top.shape, dtype=dtype)
    with torch.inference_mode():
        expected = served(rows, top, weights)
        monkeypatch.setattr(attention, "current_or_none", lambda: object.__new__(DecodeBatch))
        made = [served(rows, top, weights)]
        monkeypatch.setattr("worker_svc.runner.cuda.experts.MOST_GATHERED_BYTES", 1)
        made.append(served(rows, top, weights))
    for found in made:
        torch.testing.assert_close(found, expected)


def _width_of(served: DeviceExperts) -> int:
    experts = served._experts
    stack = experts.gate_up_proj
    return int(stack.shape[1] if experts.is_transposed else stack.shape[2])


def _num_of(served: DeviceExperts) -> int:
    return len(served._experts.gate_up_proj)


def _storages(step: DecodeStep) -> list[int]:
    """Bytes of the storages that a step makes, in order."""
    made: list[int] = []

    class Noted(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out, named = func(*args, **(kwargs or {})), kwargs or {}
            given = {leaf.untyped_storage().data_ptr() for leaf in _tensors((args, named))}
            storages = [leaf.untyped_storage() for leaf in _tensors(out)]
            made.extend(storage.nbytes() for storage in storages if storage.data_ptr() not in given)
            return out

    with torch.inference_mode(), Noted():
        step.run()
    assert len(made) > 20
    return made


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
