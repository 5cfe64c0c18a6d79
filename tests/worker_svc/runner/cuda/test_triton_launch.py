"""Where Triton is installed and cannot launch anything, torch serves, or the start is refused by name."""

from __future__ import annotations

import logging

import pytest
import torch

from worker_svc.runner.attention.attention import PagedBatch
from worker_svc.runner.cuda.loading import batch_class_for
from worker_svc.runner.errors import ModelLoadError

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are launched here")
DEVICE = torch.device("cuda")
"""Nothing can be launched on it, for want of a GPU instead of a compiler."""


def test_torch_serves_where_no_kernel_can_be_launched(caplog: pytest.LogCaptureFixture) -> None:
    """An image without a C compiler ended with a traceback, again and again."""
    with caplog.at_level(logging.WARNING):
        assert batch_class_for("auto", DEVICE) is PagedBatch
    assert "Triton cannot launch a kernel" in caplog.text


def test_what_was_asked_for_and_cannot_be_is_refused() -> None:
    with pytest.raises(ModelLoadError, match="attention triton cannot launch a kernel: "):
        batch_class_for("triton", DEVICE)
