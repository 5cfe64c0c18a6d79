"""Where Triton cannot launch anything, the start is refused by name, unless slow kernels are allowed."""

from __future__ import annotations

import logging
import sys

import pytest
import torch

from worker_svc.config import WorkerSettings
from worker_svc.runner.attention.attention import PagedBatch
from worker_svc.runner.cuda.loading import batch_class_for
from worker_svc.runner.errors import ModelLoadError

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are launched here")
DEVICE = torch.device("cuda")
"""Nothing can be launched on it, for want of a GPU instead of a compiler."""


def test_a_gpu_without_kernels_is_not_served_unless_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    """A warning made the fault of the first GPU invisible: each step took 50 times as long."""
    with pytest.raises(ModelLoadError, match=r"Triton cannot launch a kernel: .*--allow-slow-kernels"):
        batch_class_for("auto", DEVICE)
    with caplog.at_level(logging.WARNING):
        assert batch_class_for("any", DEVICE) is PagedBatch
    assert "Triton cannot launch a kernel" in caplog.text


def test_a_gpu_without_triton_is_not_served_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "worker_svc.runner.triton.batch", None)
    with pytest.raises(ModelLoadError, match=r"triton.* is not installed\. Set --allow-slow-kernels"):
        batch_class_for("auto", DEVICE)
    assert batch_class_for("any", DEVICE) is PagedBatch


def test_kernels_that_were_asked_for_and_cannot_run_are_refused() -> None:
    with pytest.raises(ModelLoadError, match="Triton cannot launch a kernel: "):
        batch_class_for("triton", DEVICE)


def test_slow_kernels_are_a_choice_for_gpus() -> None:
    assert WorkerSettings(device="cuda").kernels == "auto"
    assert WorkerSettings(device="cuda", allow_slow_kernels=True).kernels == "any"
    with pytest.raises(ValueError, match="--allow-slow-kernels is for --device cuda"):
        WorkerSettings(allow_slow_kernels=True)
