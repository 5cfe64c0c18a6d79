"""Families at the lowest transformers of pyproject.toml, which machines with GPUs have; all other tests run at the one
of the lock. Both share torch and everything else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.downloads import CACHE

ROOT = Path(__file__).resolve().parents[3]
LOWEST = "5.17.0"
REQUIREMENTS = (
    f"transformers=={LOWEST} --hash=sha256:78ec1ce21579b38dfb83950a0658cd119f87212a2fcfdff478096ce9d6c03801",
    "huggingface-hub==1.33.0 --hash=sha256:04e434b06e100eddbce9a6e817d72693a7884b10a79bd67ab48080d5c07eb899",
)
"""What is installed for it: this transformers refuses the next release of its hub's client."""
FILES = ("test_families.py", "test_wrappers.py", "recurrent/test_hybrid_families.py")
TIMEOUT_S = 600


@pytest.fixture(scope="module")
def lowest() -> Path:
    """A directory with the packages, kept between runs."""
    kept = CACHE / f"transformers-{LOWEST}"
    if not kept.is_dir():
        part = kept.with_suffix(f".{os.getpid()}")
        part.mkdir(parents=True)
        wanted = part / "requirements.txt"
        wanted.write_text("\n".join(REQUIREMENTS))
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--require-hashes"]
        done = subprocess.run(
            [*command, "--target", str(part), "-r", str(wanted)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"transformers {LOWEST} cannot be installed: {done.stderr[-500:]}")
        part.rename(kept)
    return kept


def test_it_is_the_floor_of_the_package() -> None:
    assert f'"transformers>={LOWEST.removesuffix(".0")},' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
def test_families_are_served(lowest: Path) -> None:
    """Every hybrid was refused there, with a reason that was not the true one."""
    code = "import sys, pytest, transformers; print(transformers.__version__); sys.exit(pytest.main(sys.argv[1:]))"
    options = ["-n", "0", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
    files = [str(Path(__file__).parent / name) for name in FILES]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-c", code, *options, *files],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": f"{lowest}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S - 10,
        check=False,
    )
    assert done.stdout.startswith(f"{LOWEST}\n"), done.stdout[:300] + done.stderr[-2000:]
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
