"""What oneDNN packs on this CPU."""

from __future__ import annotations

import torch

from worker_svc.runner.cpu.packed_linear import ROWS_HINT


def packs(dtype: torch.dtype) -> bool:
    """Whether it reorders weights of `dtype` at all: for bfloat16 it wants AVX-512 or AVX-NE-CONVERT."""
    try:
        torch.ops.mkldnn._reorder_linear_weight(torch.zeros(16, 16, dtype=dtype), ROWS_HINT)
    except RuntimeError as error:
        return "cpu support" not in str(error)
    return True
