"""Reasons under which failed graphs are counted, and their metric."""

from __future__ import annotations

import pytest
import torch
from triton.runtime.errors import OutOfResources

from worker_svc.metrics import of_graphs
from worker_svc.runner.cuda.faults import Reason, reason_of, text_of

OF_CAPTURE = "CUDA error: operation failed due to a previous error during capture"


def with_code(code: int) -> RuntimeError:
    """As torch numbers them since 2.9."""
    error = torch.AcceleratorError("CUDA error: in words of another version")
    error.error_code = code  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), Reason.MEMORY),
        (torch.AcceleratorError("CUDA error: out of memory"), Reason.MEMORY),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            Reason.MEMORY,
        ),
        (RuntimeError("Triton Error [CUDA]: out of memory"), Reason.MEMORY),
        (OutOfResources(400_000, 232_448, "shared memory"), Reason.RESOURCES),
        (RuntimeError("CUDA error: too many resources requested for launch"), Reason.RESOURCES),
        (
            RuntimeError("Cannot copy between CPU and CUDA tensors during CUDA graph capture unless ..."),
            Reason.HOST,
        ),
        (torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing"), Reason.HOST),
        (RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"), Reason.DEVICE),
        (torch.AcceleratorError("CUDA error: unspecified launch failure"), Reason.DEVICE),
        (with_code(2), Reason.MEMORY),
        (with_code(701), Reason.RESOURCES),
        (with_code(900), Reason.HOST),
        (with_code(719), Reason.DEVICE),
        (torch.AcceleratorError(OF_CAPTURE), Reason.OTHER),
        (ValueError("of a model's code"), Reason.OTHER),
    ],
)
def test_reasons(error: Exception, reason: Reason) -> None:
    assert reason_of(error) == reason


def test_the_first_error_of_a_chain_counts() -> None:
    """torch ends a capture that failed with an error of its own, which says nothing."""
    try:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory")
        finally:
            raise torch.AcceleratorError(OF_CAPTURE)
    except torch.AcceleratorError as error:
        assert reason_of(error) == Reason.MEMORY
        assert text_of(error) == "OutOfMemoryError: CUDA out of memory"
    assert text_of(ValueError("alone")) == "ValueError: alone"


def test_each_reason_is_a_label() -> None:
    metric = of_graphs({("capture", reason): number for number, reason in enumerate(Reason)})
    told = {(sample.labels["what"], sample.labels["reason"]): sample.value for sample in metric.samples}
    assert told == {("capture", reason.value): number for number, reason in enumerate(Reason)}
