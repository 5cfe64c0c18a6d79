"""What is launched compiles at the lowest Triton of pyproject.toml, too, which machines with GPUs have."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from tests.lowest import ROOT, installed, run_tests

LOWEST = "3.6.0"
REQUIREMENTS = (
    f"triton=={LOWEST} --hash=sha256:e8e323d608e3a9bfcc2d9efcc90ceefb764a82b99dea12a86d643c72539ad5d3",
)
"""Of Python 3.11 on x86_64, as the lock is."""
FILE = Path(__file__).with_name("test_triton_compile.py")
TIMEOUT_S = 600


def test_the_lowest_and_the_newest_are_those_of_the_package() -> None:
    """Below the next minor version, the other tests run at the newest."""
    major, minor = version("triton").split(".")[:2]
    bounds = f'"triton>={LOWEST.removesuffix(".0")},<{major}.{int(minor) + 1};'
    assert bounds in (ROOT / "pyproject.toml").read_text()


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
def test_kernels_compile() -> None:
    packages = installed("triton", LOWEST, REQUIREMENTS)
    run_tests(packages, "triton", LOWEST, [FILE], "slow or not slow", TIMEOUT_S - 10)
