"""Whether Triton can launch anything here: it compiles its way into the driver first, which needs a C compiler."""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl

WRITTEN = 7
"""Any number."""


@triton.jit  # type: ignore[untyped-decorator]
def write_one(place, number):  # type: ignore[no-untyped-def]  # Triton refuses annotations with Python's names
    """Writes a number: the smallest kernel."""
    tl.store(place, number)


@cache
def launch_error(device: torch.device) -> str | None:
    """Why no kernel can be launched on `device`; None if it can."""
    try:
        to = torch.zeros(1, dtype=torch.int32, device=device)
        write_one[(1,)](to, WRITTEN)
        found = int(to.item())
    except Exception as error:  # of the compiler, of the driver, or of torch
        return str(error) or type(error).__name__
    return None if found == WRITTEN else f"a kernel wrote {found} instead of {WRITTEN}"
