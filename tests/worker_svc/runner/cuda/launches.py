"""Stands in for a GPU's driver on a machine without one: kernels are launched and do not run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from tests.downloads import CACHE
from worker_svc.runner.cuda.copies import copier
from worker_svc.runner.triton import fused
from worker_svc.runner.triton.states import layer

NO_STREAM = 0


@dataclass(frozen=True)
class Launch:
    """A kernel as one launch needs it."""

    name: str
    compiled: Any
    """What Triton made of it: `asm`, `metadata`, and a `hash` that is another for each specialisation."""


class AbsentGPU(DriverBase):
    """The driver of a GPU that is not here. Its number is its compute capability, as Triton keeps kernels by number."""

    def __init__(self, capability: int) -> None:
        super().__init__()
        self._capability = capability

    @classmethod
    def is_active(cls) -> bool:
        """No: Triton does not choose it by itself."""
        return False

    def get_current_device(self) -> int:
        """Its number."""
        return self._capability

    def get_current_stream(self, device: int) -> int:
        """Nothing is launched on it."""
        return NO_STREAM

    def get_current_target(self) -> GPUTarget:
        """What kernels are compiled for."""
        return GPUTarget("cuda", self._capability, 32)

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Of a launcher, which nothing needs."""
        raise NotImplementedError

    get_active_torch_device = get_benchmarker = map_python_to_cpp_type  # type: ignore[assignment]


@contextmanager
def launching(launch: Callable[..., object]) -> Iterator[None]:
    """Within it, `kernel[grid](...)` calls `launch(kernel, ..., grid=grid)` instead. As nothing is computed, modules
    that would be compared with those of the model take their places unseen."""

    def run(kernel: Any, *args: Any, warmup: bool, **options: Any) -> object:
        return launch(kernel, *args, **options)

    with ExitStack() as replaced:
        replaced.enter_context(patch.object(JITFunction, "run", run))
        replaced.enter_context(patch.object(fused, "relative_error", lambda *_: 0.0))
        replaced.enter_context(patch.object(layer, "compare", lambda *_: None))
        replaced.enter_context(patch.object(copier, "are_alike", lambda *_: True))
        yield


@contextmanager
def compiling(capability: int = 90) -> Iterator[list[Launch]]:
    """Within it, each launch compiles its kernel for a GPU of this capability, specialised by Triton for the arguments
    as they are: None, the number 1, multiples of 16, aligned tensors. Yields the launches.

    Triton keeps what it compiled, between runs as well, by sources, constants, options, target and its version."""
    launches: list[Launch] = []
    specialise = JITFunction.run

    def compiled(kernel: Any, *args: Any, **options: Any) -> None:
        launches.append(Launch(kernel.fn.__name__, specialise(kernel, *args, warmup=True, **options)))

    with (
        patch.dict("os.environ", {"TRITON_CACHE_DIR": str(CACHE / "triton")}),
        patch.object(driver, "_active", AbsentGPU(capability)),
        launching(compiled),
    ):
        yield launches
