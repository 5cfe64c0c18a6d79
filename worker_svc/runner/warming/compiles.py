"""Hears of each kernel variant that Triton compiles, or loads from its cache on disk, in this process."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import triton

from worker_svc.core.batch import WarmUp

logger = logging.getLogger(__name__)
Hook = Callable[..., Any]


class KernelCompiles:
    """Counts variants; once the worker serves, each is a fault that is logged and counted in its `WarmUp`."""

    def __init__(self, warm_up: WarmUp) -> None:
        self.num_kernels = 0
        """Variants so far, those of `warm_up.num_late_compiles` among them."""
        self.num_from_disk = 0
        """Variants that were in Triton's cache on disk, of `num_kernels`."""
        self._warm_up = warm_up
        self._is_serving = False
        self._started = 0.0

    def listen(self) -> None:
        """Has Triton call it, beside whoever listens already, for as long as the process lives."""
        hooks = triton.knobs.runtime
        hooks.jit_cache_hook = _both(self._begin, hooks.jit_cache_hook)
        hooks.jit_post_compile_hook = _both(self._end, hooks.jit_post_compile_hook)
        compilation = triton.knobs.compilation
        compilation.listener = _both(self._note_source, compilation.listener)

    def serve(self) -> None:
        """From now on no variant should be missing."""
        self._is_serving = True

    def _begin(self, **_: Any) -> None:
        self._started = time.monotonic()
        if self._is_serving:
            self._warm_up.on_compile()

    def _note_source(self, *, cache_hit: bool, **_: Any) -> None:
        self.num_from_disk += cache_hit

    def _end(self, *, fn: Any, compile: dict[str, Any], **_: Any) -> None:
        self.num_kernels += 1
        if not self._is_serving:
            return
        self._warm_up.num_late_compiles += 1
        logger.warning(
            "Kernel %s was compiled while serving, which held up a step for %.1f s. The warm-up lacks this variant: %s",
            fn.name,
            time.monotonic() - self._started,
            variant_of(compile),
        )


def variant_of(compiled: dict[str, Any]) -> str:
    """What distinguishes a variant: types of arguments, "/16" where their addresses or values are multiples of 16, and
    constants. `compiled` is what Triton tells its hooks."""
    signature, attributes = compiled["signature"], compiled["configs"][0]
    constants = {path[0]: value for path, value in compiled["constants"].items()}
    parts = []
    for number, (name, kind) in enumerate(signature.items()):
        if number in constants:
            parts.append(f"{name}={constants[number]}")
        else:
            parts.append(f"{name}:{kind}{'/16' if attributes.get((number,)) else ''}")
    return ", ".join(parts)


def _both(own: Hook, other: Hook | None) -> Hook:
    """Calls both; returns what the `other` does, which may forbid a compile."""

    def call(**told: Any) -> Any:
        own(**told)
        return None if other is None else other(**told)

    return call
