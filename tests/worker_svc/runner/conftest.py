"""Tiny models with random weights, written once per test session."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.worker_svc.runner.cpu.made_libraries import kernels_for
from tools.make_random_model import make_model
from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.runner.cpu.shipped.isas import ISAS
from worker_svc.runner.sampling import sampler

torch.set_num_threads(1)
COMPILING_TIMEOUT_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whichever test asks for the kernels first has them compiled, which takes long where much else runs."""
    for item in items:
        if "kernels" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(COMPILING_TIMEOUT_S))


@pytest.fixture(scope="session", params=["native", "x86-64-v3", "x86-64"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """As they are built here, for any CPU with AVX2, and for any at all."""
    native = native_kernels()
    if native is None:
        pytest.skip("there is no C++ compiler")
    if request.param == "native":
        return native  # built again with the same option twice, it would have another name
    if platform.machine() != "x86_64":
        pytest.skip("these are other machines' CPUs")
    return kernels_for(next(isa for isa in ISAS if isa.name == request.param))


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Directory of a preset in float32, by its name."""
    made: dict[str, Path] = {}

    def get(preset: str) -> Path:
        if preset not in made:
            made[preset] = make_model(preset, tmp_path_factory.mktemp(preset), seed=1)
        return made[preset]

    return get


@pytest.fixture(params=["kernels", "torch"])
def draws_with(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler as it is with kernels, and as it is without."""
    if request.param == "torch":
        monkeypatch.setattr(sampler, "native_kernels", lambda: None)
    elif native_kernels() is None:
        pytest.skip("there is no C++ compiler")
