"""The host does no more in a step of the GPU's runner than its budgets say, and one thing more is found."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.worker_svc.runner.cuda.step_counts import COMMAND, MODELS, PATH, ROOT, measure
from tools.structure.budgets import complaints, read_budgets
from tools.structure.history import wrong_raises
from worker_svc.runner.cuda.runner import CudaRunner
from worker_svc.runner.cuda.transfers import HostCopy, upload
from worker_svc.runner.triton import attention

pytest.importorskip("triton")
LOCK = (ROOT / "locks/ci.txt").read_text()
pytestmark = [
    pytest.mark.skipif(attention.INTERPRETED, reason="kernels are interpreted in this process"),
    pytest.mark.skipif(
        not all(f"\n{name}=={version(name)} " in LOCK for name in ("torch", "transformers")),
        reason="other versions have other operators",
    ),
]
ModelDir = Callable[[str], Path]
BUDGETS = read_budgets((ROOT / PATH).read_text())


@pytest.mark.parametrize("family", MODELS)
def test_steps_are_within_their_budgets(family: str, model_dir: ModelDir) -> None:
    of_family = {name: value for name, value in BUDGETS.items() if f".{family}." in name}
    assert complaints(measure(model_dir, [family]), of_family, f"{COMMAND} --tighten") == []


def test_no_commit_has_raised_a_budget_beside_other_changes() -> None:
    assert wrong_raises(ROOT, PATH) == []


@pytest.mark.parametrize(
    ("planted", "numbers"),
    [
        (lambda tokens: tokens[0].item(), {"waits", "host_copies"}),
        (lambda tokens: tokens.tolist(), {"waits", "host_copies"}),
        (lambda tokens: tokens[tokens > 0], {"waits", "host_copies", "launches"}),
        (HostCopy, {"host_copies", "launches"}),
        (lambda tokens: upload([np.arange(3)], tokens.device), {"uploads"}),
        (lambda tokens: torch.tensor([1, 2], device=tokens.device), {"uploads", "launches"}),
        (lambda tokens: tokens + 1, {"launches"}),
        (lambda tokens: tokens[1:].view(-1), set()),
    ],
    ids=["item", "tolist", "index by a mask", "copy back", "upload", "tensor", "operator", "view"],
)
def test_planted_work_of_the_host(
    planted: Callable[[torch.Tensor], object],
    numbers: set[str],
    model_dir: ModelDir,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In each step, and nothing else of it changes."""
    targets = CudaRunner._targets

    def and_more(runner: CudaRunner, *args: Any) -> tuple[torch.Tensor, torch.Tensor]:
        planted(runner._state.tokens)
        return targets(runner, *args)

    monkeypatch.setattr(CudaRunner, "_targets", and_more)
    counts = measure(model_dir, ["dense"])
    assert {name for name, count in counts.items() if count != BUDGETS[name]} == {
        f"steps.{step}.dense.{number}" for step in ("decode", "mixed") for number in numbers
    }


def test_planted_steps_without_graphs(model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker_svc.runner.cuda.graphs.DecodeSteps.capture", lambda *_: None)
    counts = measure(model_dir, ["dense"])
    assert counts["steps.decode.dense.replays"] == 0
    assert counts["steps.decode.dense.launches"] > 1.3 * BUDGETS["steps.decode.dense.launches"]
