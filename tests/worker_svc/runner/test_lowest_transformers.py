"""Families at the lowest transformers of pyproject.toml, which machines with GPUs have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lowest import ROOT, installed, run_tests

LOWEST = "5.17.0"
REQUIREMENTS = (
    f"transformers=={LOWEST} --hash=sha256:78ec1ce21579b38dfb83950a0658cd119f87212a2fcfdff478096ce9d6c03801",
    "huggingface-hub==1.33.0 --hash=sha256:04e434b06e100eddbce9a6e817d72693a7884b10a79bd67ab48080d5c07eb899",
)
"""What is installed for it: this transformers refuses the next release of its hub's client."""
FILES = ("test_families.py", "test_wrappers.py", "recurrent/test_hybrid_families.py")
TIMEOUT_S = 600


def test_it_is_the_floor_of_the_package() -> None:
    assert f'"transformers>={LOWEST.removesuffix(".0")},' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
def test_families_are_served() -> None:
    """Every hybrid was refused there, with a reason that was not the true one."""
    packages = installed("transformers", LOWEST, REQUIREMENTS)
    files = [Path(__file__).parent / name for name in FILES]
    run_tests(packages, "transformers", LOWEST, files, "not slow", TIMEOUT_S - 10)
