"""Large tensors are where the system may put huge pages."""

from __future__ import annotations

import mmap
import re
import sys
from pathlib import Path

import pytest
import torch

from worker_svc.runner.cpu.huge_pages import SMALLEST_BYTES, allocate

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(mmap, "MADV_HUGEPAGE"), reason="this system has no huge pages"
)


def mapping_of(tensor: torch.Tensor) -> tuple[str, list[str]]:
    """Permissions and flags of the memory that a tensor begins in, as Linux tells them."""
    for text in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text()):
        span, permissions = text.split(maxsplit=2)[:2]
        start, end = (int(number, 16) for number in span.split("-"))
        if start <= tensor.data_ptr() < end:
            return permissions, text.rpartition("VmFlags:")[2].split()
    raise AssertionError("the memory is nowhere")


def test_large_tensors_are_private_memory_that_wants_huge_pages() -> None:
    """Shared memory, which `mmap` takes unless it is told otherwise, has none where systems are as they come."""
    permissions, flags = mapping_of(allocate((2 * SMALLEST_BYTES,), torch.uint8))
    assert permissions == "rw-p"
    assert "hg" in flags
