"""What `python -m benchmarks.gpu` finds without a GPU: the two faults that stopped the first one, put back."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.context import Context
from benchmarks.gpu.order import Order
from benchmarks.gpu.right import preset as presets
from benchmarks.gpu.right import stage
from benchmarks.gpu.right.handing import hand_over
from benchmarks.gpu.right.reference import Reference
from tests.worker_svc.runner.reference import make_prompts, make_runner
from worker_svc.runner.cuda.captures import Capture, Results
from worker_svc.runner.cuda.graphs import CapturedStep, DecodeStep
from worker_svc.runner.triton import launch
from worker_svc.runner.triton.batch import DecodeBatch

ModelDir = Callable[[str], Path]


@pytest.fixture
def right(tmp_path: Path) -> Callable[[], tuple[list[str], list[dict[str, Any]]]]:
    """Runs the stage up to what it finds: its failures, and its lines."""

    def run() -> tuple[list[str], list[dict[str, Any]]]:
        lines: list[dict[str, Any]] = []
        context = Context(Order("cpu", tmp_path), lines.append, time.monotonic() + 300, {})
        stage.run(context)
        return context.failures, lines

    return run


def test_planted_a_kernel_with_annotations(
    right: Callable[[], tuple[list[str], list[dict[str, Any]]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first fault: Triton refuses names of Python in a kernel, and its interpreter does not."""
    text = Path(launch.__file__).read_text()
    planted = tmp_path / "planted.py"
    planted.write_text(
        text.replace("def write_one(place, number):", "def write_one(place: Any, number: Any):").replace(
            "import torch\n", "from typing import Any\n\nimport torch\n", 1
        )
    )
    assert "place: Any" in planted.read_text()
    spec = importlib.util.spec_from_file_location("planted", planted)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(launch, "write_one", module.write_one)
    failures, lines = right()
    assert len(failures) == 1
    assert failures[0].startswith("Triton cannot launch a kernel: ") and "global" in failures[0]
    assert [(line["kind"], line["launches"]) for line in lines] == [("kernels", False)]


@pytest.mark.timeout(300)
def test_planted_a_captured_step_that_lets_go_of_its_items(
    right: Callable[[], tuple[list[str], list[dict[str, Any]]]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The second fault: a graph reads what nobody keeps. The runner goes on without it, and the stage fails."""

    def forgetful(
        step: CapturedStep, captured: DecodeStep, capture: Capture, _: Results | None = None
    ) -> None:
        step._replay, step.results = capture(captured.run)
        step._step = copy(captured)
        step._step._items = captured._items.clone()

    monkeypatch.setattr(CapturedStep, "__init__", forgetful)
    monkeypatch.setattr(presets.TinyModel, "cases", lambda model: [model._in_turn(*model._serve(IN_TURN))])
    failures, _ = right()
    assert "attend_kernel, which was freed after its capture" in caplog.text
    assert failures == ["speck-qwen3: 2 decode steps have no graph, or had to give it up; the log says why"]


@pytest.mark.timeout(300)
def test_planted_wrong_positions_in_decode_steps(
    right: Callable[[], tuple[list[str], list[dict[str, Any]]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens that are not transformers' own are counted, case by case."""
    init = DecodeBatch.__init__

    def one_late(batch: DecodeBatch, cache: Any, positions: Any, *others: Any, **more: Any) -> None:
        init(batch, cache, (positions - 1).clamp_min(0), *others, **more)

    monkeypatch.setattr(DecodeBatch, "__init__", one_late)
    monkeypatch.setattr(presets.TinyModel, "cases", lambda model: [model._in_turn(*model._serve(IN_TURN))])
    failures, lines = right()
    case = next(line for line in lines if line["kind"] == "case")
    assert case["wrong"] > 0
    assert failures == [
        f"speck-qwen3, chunked, in turn: {case['wrong']} of {case['tokens']} tokens are wrong"
    ]


IN_TURN = presets.RingSettings(depth=1)


@pytest.mark.parametrize("preset", ["tiny-qwen3", "hybrid-lfm2"])
def test_requests_go_on_from_the_bytes_of_their_blocks(model_dir: ModelDir, preset: str) -> None:
    """And of their states: as the bench checks it where blocks of a runner travel."""
    path = model_dir(preset)
    runner = make_runner(path)
    assert runner.info.kv_layout
    reference = Reference(path, runner.model.device)
    moved = hand_over(runner, make_prompts((5, 17, 31)), 8)
    assert [len(output) for _, output in moved] == [8, 8, 8]
    assert [reference.compare(*each).wrong for each in moved] == [0, 0, 0]
