"""Writes locks/: every package of an environment in one version, with the hashes of its files.

    make lock                # what is new stays what it was, unless a requirement asks for more
    make lock ARGS=--upgrade

For Linux on x86_64 and Python 3.11, as images and continuous integration are. `dev.txt` is what `make install` takes,
`ci.txt` has the routers and load generators of the contract tests besides; each image has one of its own, in the same
versions; `release.txt` is what `make lock` and `make sbom` run with. torch is its build for CPUs but in
`worker-gpu.txt`, where it is the one of the Python package index, with CUDA.

Needs `uv`, which does not read pip's configuration: --find-links names where that build of torch is.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "locks"
TORCH = "https://download.pytorch.org/whl/cpu/torch/"
PLATFORM = ("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28")
HEAD = """# Made by `make lock`; see tools/lock.py. Install with: pip install --require-hashes --no-deps -r {path}
"""
CUDA_HEAD = "# torch with CUDA, of the Python package index.\n"
CPU_HEAD = "# torch for CPUs: of https://download.pytorch.org/whl/cpu, unless pip is configured to find it elsewhere.\n"


@dataclass(frozen=True)
class Lock:
    """One environment."""

    name: str
    extras: tuple[str, ...]
    has_cuda: bool = False
    follows: str = ""
    """The lock whose versions it takes."""

    @property
    def path(self) -> Path:
        return LOCKS / f"{self.name}.txt"


ALL = (
    Lock("ci", ("all", "dev", "routers", "guidellm")),
    Lock("dev", ("all", "dev"), follows="ci"),
    Lock("scheduler", ("scheduler", "telemetry"), follows="ci"),
    Lock("frontend", ("frontend", "telemetry"), follows="ci"),
    Lock("worker", ("worker", "telemetry"), follows="ci"),
    Lock("release", ("release",)),
    Lock("worker-gpu", ("worker", "telemetry"), has_cuda=True, follows="ci"),
)
"""In the order in which they follow each other."""


def compile_lock(lock: Lock, find_links: str, *, upgrade: bool) -> None:
    """Writes one lock. Raises CalledProcessError, after uv has said what cannot be had."""
    options = ["--generate-hashes", "--no-annotate", "--no-header", "--quiet", *PLATFORM]
    options += [part for extra in lock.extras for part in ("--extra", extra)]
    options += ["--constraint", "constraints.txt"]
    if not lock.has_cuda:
        options += ["--find-links", find_links]
    if upgrade:
        options.append("--upgrade")
    with tempfile.TemporaryDirectory() as folder:
        if lock.follows:
            pins = Path(folder) / "pins.txt"
            pins.write_text(pins_of(LOCKS / f"{lock.follows}.txt", without_torch=lock.has_cuda))
            options += ["--constraint", str(pins)]
        output = Path(folder) / "lock.txt"
        if lock.path.exists():
            shutil.copy(lock.path, output)
        command = ["uv", "pip", "compile", *options, "--output-file", str(output), "pyproject.toml"]
        subprocess.run(command, cwd=ROOT, check=True)
        head = HEAD.format(path=lock.path.relative_to(ROOT))
        if "torch==" in output.read_text():
            head += CUDA_HEAD if lock.has_cuda else CPU_HEAD
        lock.path.write_text(head + output.read_text())


def pins_of(path: Path, *, without_torch: bool) -> str:
    """The versions of a lock, for another one; torch with CUDA brings its own Triton."""
    pins = re.findall(r"^([\w.-]+==\S+)", path.read_text(), re.MULTILINE)
    return (
        "\n".join(pin for pin in pins if not (without_torch and pin.startswith(("torch==", "triton=="))))
        + "\n"
    )


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.lock", description="Write locks/ anew.")
    found = os.environ.get("PIP_FIND_LINKS", TORCH)
    parser.add_argument("--find-links", default=found, help="where torch for CPUs is (%(default)s)")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that are allowed")
    arguments = parser.parse_args()
    if shutil.which("uv") is None:
        print("lock: there is no uv; pip install uv", file=sys.stderr)
        return 1
    LOCKS.mkdir(exist_ok=True)
    for lock in ALL:
        try:
            compile_lock(lock, arguments.find_links, upgrade=arguments.upgrade)
        except subprocess.CalledProcessError:
            print(f"lock: {lock.path.name} cannot be made", file=sys.stderr)
            return 1
        print(f"{lock.path.relative_to(ROOT)}: {lock.path.read_text().count('==')} packages")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
