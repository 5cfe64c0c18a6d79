"""Shipped libraries, made once for these sources and kept between runs: that takes a minute or two."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from tests.downloads import CACHE
from worker_svc.runner.cpu.native import build
from worker_svc.runner.cpu.shipped import make
from worker_svc.runner.cpu.shipped.isas import ISAS

HERE = platform.machine()
needs_compiler = pytest.mark.skipif(
    not any(isa.machine == HERE for isa in ISAS) or not build.has_compiler(),
    reason="there is no C++ compiler",
)


@pytest.fixture(scope="session")
def libraries() -> Path:
    """The folder of the real libraries for this machine."""
    folder = CACHE / "kernels" / build.build_key(build.find_compiler())
    if not (folder / "kernels.json").is_file():
        make.make(folder, HERE)
    return folder
