"""Libraries as they are shipped."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from tests.pairs import ALL_COMBINATIONS
from tests.worker_svc.runner.cpu.made_libraries import folder_of_libraries
from worker_svc.runner.cpu.flags import cpu_flags
from worker_svc.runner.cpu.native import build
from worker_svc.runner.cpu.shipped.isas import ISAS, runnable

HERE = platform.machine()
needs_compiler = pytest.mark.skipif(
    not any(isa.machine == HERE for isa in ISAS) or not build.has_compiler(),
    reason="there is no C++ compiler",
)


LEAST = ("x86-64", "x86-64-v3")
RUNNABLE = [
    isa
    for place, isa in enumerate(runnable(HERE, cpu_flags()))
    if ALL_COMBINATIONS or not place or isa.name in LEAST
]
"""Kinds of CPU whose libraries run here: the best one and the least ones, in `make soak` all."""


@pytest.fixture(scope="session")
def libraries() -> Path:
    """A folder of real libraries for this machine."""
    return folder_of_libraries([isa for isa in ISAS if isa.machine == HERE] if ALL_COMBINATIONS else RUNNABLE)
