"""Every shipped library that this CPU runs gives the bits of the one that is compiled here."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.worker_svc.runner.cpu.kernel_parts import PARTS, Part
from tests.worker_svc.runner.cpu.shipped.conftest import RUNNABLE, needs_compiler
from tests.worker_svc.runner.reference import make_prompts, make_runner
from tests.worker_svc.runner.runner_harness import Driver
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.runner import torch_runner
from worker_svc.runner.attention import attention
from worker_svc.runner.cpu import optimize
from worker_svc.runner.cpu.native import build
from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.runner.cpu.native.library import open_shipped
from worker_svc.runner.cpu.shipped.isas import Isa
from worker_svc.runner.cpu.shipped.manifest import read_manifest
from worker_svc.runner.sampling import sampler

USERS = (attention, optimize, sampler, torch_runner)
pytestmark = [needs_compiler, pytest.mark.slow, pytest.mark.timeout(900)]
isas = pytest.mark.parametrize("isa", RUNNABLE, ids=lambda isa: isa.name)


def shipped(libraries: Path, isa: Isa) -> Kernels:
    manifest = read_manifest(libraries)
    assert manifest is not None
    return Kernels(open_shipped(libraries, isa, manifest))


def compiled(isa: Isa | None = None) -> Kernels:
    """As they are compiled at a first start: for this CPU, or as if it were another one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "OPTIONS", (*build.OPTIONS, *(isa.options if isa else ())))
        return Kernels(ctypes.CDLL(str(build.built_library(build.find_compiler()))))


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
@isas
def test_kernels(libraries: Path, isa: Isa, part: Part) -> None:
    """With fewer instructions, too: but for what multiplies bfloat16 at once, and for CPUs without a fused
    multiplication, which are compared with what is compiled for such a CPU."""
    ours = shipped(libraries, isa)
    theirs = compiled() if isa.flags else compiled(isa)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theirs, "has_dot", ours.has_dot)
        for number, (one, another) in enumerate(zip(part(ours), part(theirs), strict=True)):
            assert torch.equal(one.view(torch.uint8), another.view(torch.uint8)), (part.__name__, number)


def cache_after(
    kernels: Kernels, path: Path, dtype: str, patch: pytest.MonkeyPatch
) -> tuple[list[list[int]], list[torch.Tensor]]:
    """Outputs of a few requests, and all keys and values that were written: they show each bit of each layer."""
    for user in USERS:
        patch.setattr(user, "native_kernels", lambda: kernels)
    runner = make_runner(path, dtype=dtype)
    driver = Driver(runner)
    for number, prompt in enumerate(make_prompts()):
        driver.add(prompt, 20, SamplingParams(temperature=1.0, top_p=0.9, seed=number))
    driver.run()
    outputs = [request.output for request in driver.requests]
    return outputs, [part.clone() for layer in runner._cache.layers for part in (layer.keys, layer.values)]


@pytest.mark.parametrize("preset", ["tiny-llama", "tiny-gemma3"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_whole_model(
    libraries: Path,
    model_dir: Callable[[str], Path],
    preset: str,
    dtype: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    best = shipped(libraries, RUNNABLE[0])
    ours, our_cache = cache_after(best, model_dir(preset), dtype, monkeypatch)
    theirs, their_cache = cache_after(compiled(), model_dir(preset), dtype, monkeypatch)
    assert ours == theirs
    assert all(torch.equal(a, b) for a, b in zip(our_cache, their_cache, strict=True))
