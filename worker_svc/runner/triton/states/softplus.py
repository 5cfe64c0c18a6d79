"""Functions that several kernels of states share."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def softplus(x):  # type: ignore[no-untyped-def]
    """log(1 + exp(x)), as exact where exp(x) is far below 1: what 1 + exp(x) was rounded by is made good (Kahan)."""
    power = tl.exp(tl.minimum(x, 20.0))
    whole = 1.0 + power
    behind = tl.where(whole == 1.0, 1.0, whole - 1.0)
    log = tl.where(whole == 1.0, power, tl.log(whole) * (power / behind))
    return tl.where(x > 20.0, x, log)
