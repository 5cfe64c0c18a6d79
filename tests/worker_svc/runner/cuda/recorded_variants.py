"""Records which variants of kernels Triton would compile for a GPU that is not here; nothing is compiled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import triton
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from tests.worker_svc.runner.cuda.launches import AbsentGPU, launching
from worker_svc.runner.warming.compiles import variant_of

CAPABILITY = 90


class UnmetGPU(AbsentGPU):
    """A GPU that nothing was compiled for in this process: Triton, which keeps kernels by its number, has each ask."""

    def get_current_device(self) -> int:
        """No other's number."""
        return 1000 + self._capability


@contextmanager
def recorded_variants() -> Iterator[set[str]]:
    """Within it, each launch is specialised by Triton's JIT, and is neither compiled nor run. Yields the variants."""
    variants: set[str] = set()
    specialise = JITFunction.run

    def forbid(*, fn: Any, compile: dict[str, Any], **_: Any) -> bool:
        variants.add(f"{fn.name}: {variant_of(compile)}")
        return True

    def launch(kernel: Any, *args: Any, **options: Any) -> None:
        specialise(kernel, *args, warmup=True, **options)

    with (
        patch.object(driver, "_active", UnmetGPU(CAPABILITY)),
        patch.object(triton.knobs.runtime, "jit_cache_hook", forbid),
        launching(launch),
    ):
        yield variants
