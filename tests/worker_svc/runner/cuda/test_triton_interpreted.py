"""Runs the tests of `interpreted/`, in processes where Triton interprets its kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
HERE = Path(__file__).parent
FILES = sorted(path.name for path in (HERE / "interpreted").glob("test_*.py"))


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", FILES)
def test_file(name: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "0",
        "-q",
        "-p",
        "no:cacheprovider",
        f"interpreted/{name}",
    ]
    root = HERE.parents[3]
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    for variable in [v for v in environment if v.startswith("PYTEST_")]:
        del environment[variable]
    done = subprocess.run(
        command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=380, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_files() -> None:
    assert len(FILES) >= 3
