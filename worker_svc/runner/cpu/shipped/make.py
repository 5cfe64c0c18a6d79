"""Compiles the kernels for every kind of CPU of a machine. Needs a compiler, and nothing beyond Python.

    python -m worker_svc.runner.cpu.shipped.make DIRECTORY [--machine aarch64]

Where DIRECTORY is worker_svc/runner/cpu/shipped/lib of what is installed or packed then, the libraries are shipped.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import sys
import tempfile
from pathlib import Path

from worker_svc.runner.cpu.native import build
from worker_svc.runner.cpu.shipped.isas import ISAS, Isa
from worker_svc.runner.cpu.shipped.manifest import FOLDER, Entry, Manifest, entry_of, library_path

GLIBC = (2, 28)
"""The version of the oldest systems that libraries run on: the one of torch's own wheels."""
NEWEST = {"GLIBC": GLIBC, "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}
"""Newest versions of symbols that such a system has."""
SUFFIXES = ("", "-12", "-13", "-14")
COMPILE_TIMEOUT_S = 1800
"""The limit for one library; nobody waits for it, as at a first start."""


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m worker_svc.runner.cpu.shipped.make", description="Compile the kernels to be shipped."
    )
    parser.add_argument("directory", type=Path, nargs="?", default=FOLDER, help="(%(default)s)")
    parser.add_argument(
        "--machine", choices=sorted({isa.machine for isa in ISAS}), default=platform.machine()
    )
    arguments = parser.parse_args()
    try:
        manifest = make(arguments.directory, arguments.machine)
    except build.BuildError as error:
        print(f"make: {error}", file=sys.stderr)
        return 1
    for name, entry in manifest.libraries.items():
        print(f"{entry.bytes:8} {library_path(arguments.directory, name)}")
    return 0


def make(folder: Path, machine: str) -> Manifest:
    """Fills `folder` with the libraries for a machine, in place of all that was there. Raises BuildError."""
    compiler = compiler_for(machine)
    with tempfile.TemporaryDirectory(prefix="kernels-") as directory:
        made = Path(directory)
        libraries = {isa.name: compile_for(isa, compiler, made) for isa in ISAS if isa.machine == machine}
        version = build.run([compiler, "--version"]).splitlines()[0]
        manifest = Manifest(build.source_key(), version, libraries)
        manifest.write(made)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(made, folder)
    return manifest


def compiler_for(machine: str) -> str:
    """This machine's compiler, or one for the other machine. BuildError if there is none."""
    if machine == platform.machine():
        return build.find_compiler()
    names = [f"{machine}-linux-gnu-g++{suffix}" for suffix in SUFFIXES]
    compiler = next(filter(None, map(shutil.which, names)), None)
    if compiler is None:
        raise build.BuildError(f"there is no C++ compiler for {machine}")
    return compiler


def compile_for(isa: Isa, compiler: str, folder: Path) -> Entry:
    """Writes one library. It names no OpenMP library, as it takes the one that torch has brought: see openmp.py."""
    objects, path = folder / "kernels.o", library_path(folder, isa.name)
    options = [option for option in build.OPTIONS if option not in (build.NATIVE, "-shared")]
    build.run(
        [compiler, *options, *isa.options, "-c", str(build.SOURCE), "-o", str(objects)], COMPILE_TIMEOUT_S
    )
    build.run([compiler, "-shared", "-Wl,-s", str(objects), "-o", str(path)])
    objects.unlink()
    path.chmod(0o755)
    check_symbols(path)
    return entry_of(path)


def check_symbols(path: Path) -> None:
    """BuildError if the library needs a newer system than it is said to."""
    needed = build.run([os.environ.get("READELF") or "readelf", "--wide", "--version-info", str(path)])
    for library, text in re.findall(r"\b(GLIBC|GLIBCXX|CXXABI|GCC)_(\d[\d.]*)", needed):
        if tuple(map(int, text.split("."))) > NEWEST[library]:
            raise build.BuildError(f"{path.name} needs {library}_{text}, which older systems do not have")


if __name__ == "__main__":
    raise SystemExit(main())
