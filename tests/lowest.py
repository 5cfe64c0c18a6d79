"""Runs tests at the lowest version of a package that pyproject.toml promises; all others run at that of the lock."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.downloads import CACHE

ROOT = Path(__file__).resolve().parents[1]


def installed(package: str, version: str, requirements: Sequence[str]) -> Path:
    """A directory with `requirements`, lines with hashes as pip takes them, kept between runs. All else is shared with
    this environment. Skips the test that asks when it cannot be had."""
    kept = CACHE / f"{package}-{version}"
    if not kept.is_dir():
        part = kept.with_suffix(f".{os.getpid()}")
        part.mkdir(parents=True)
        wanted = part / "requirements.txt"
        wanted.write_text("\n".join(requirements))
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--require-hashes"]
        done = subprocess.run(
            [*command, "--target", str(part), "-r", str(wanted)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"{package} {version} cannot be installed: {done.stderr[-500:]}")
        part.rename(kept)
    return kept


def run_tests(
    packages: Path, module: str, version: str, files: Sequence[Path], mark: str, timeout_s: float
) -> None:
    """Asserts that the tests of `files` that have the `mark` pass with `packages`, of which `module` is this one."""
    code = f"import sys, pytest, {module}; print({module}.__version__); sys.exit(pytest.main(sys.argv[1:]))"
    options = ["-n", "0", "-m", mark, "-p", "no:cacheprovider"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-c", code, *options, *map(str, files)],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": f"{packages}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.stdout.startswith(f"{version}\n"), done.stdout[:300] + done.stderr[-2000:]
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout, done.stdout[-2000:]
