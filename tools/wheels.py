"""Makes the wheels: one for any machine, and one with compiled kernels for each kind of machine that is asked for.

    python -m tools.wheels DIRECTORY [--machine x86_64 aarch64]

A wheel for another machine needs a cross compiler (Debian: g++-aarch64-linux-gnu). pip takes the wheel that fits.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.packages import PACKED
from worker_svc.runner.cpu.native.build import BuildError
from worker_svc.runner.cpu.shipped.make import GLIBC, make
from worker_svc.runner.cpu.shipped.manifest import FOLDER

ROOT = Path(__file__).resolve().parent.parent
PACKED = (
    *("pyproject.toml", "README.md", "LICENSE"),
    *PACKED,
)
"""What wheels are made of."""
LIBRARIES = FOLDER.relative_to(ROOT)


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.wheels", description="Make the wheels.")
    parser.add_argument("directory", type=Path, nargs="?", default=Path("dist"), help="(%(default)s)")
    parser.add_argument("--machine", nargs="*", default=[platform.machine()], help="(this one)")
    arguments = parser.parse_args()
    try:
        print(make_wheel(arguments.directory, None))
        for machine in arguments.machine:
            print(make_wheel(arguments.directory, machine))
    except (BuildError, subprocess.CalledProcessError) as error:
        print(f"wheels: {error}", file=sys.stderr)
        return 1
    return 0


def make_wheel(out: Path, machine: str | None, libraries: Path | None = None) -> Path:
    """Path of the wheel for a machine, with `libraries` or else newly compiled ones; None: for any, without kernels.

    Raises BuildError and CalledProcessError.
    """
    with tempfile.TemporaryDirectory(prefix="wheel-") as directory:
        source, made = Path(directory) / "source", Path(directory) / "made"
        copy_source(source)
        if machine is not None and libraries is not None:
            shutil.copytree(libraries, source / LIBRARIES)
        elif machine is not None:
            make(source / LIBRARIES, machine)
        run_pip(
            source, made, [] if machine is None else [f"--build-option=--plat-name={platform_tag(machine)}"]
        )
        (wheel,) = made.iterdir()
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(wheel, out / wheel.name))


def copy_source(to: Path) -> None:
    """Copies what is packed, into a folder where nothing is left of other builds."""
    to.mkdir()
    left_out = shutil.ignore_patterns("__pycache__", "*.egg-info", FOLDER.name)
    for name in PACKED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, ignore=left_out)
        else:
            shutil.copy(ROOT / name, to / name)


def platform_tag(machine: str) -> str:
    """Of systems that the libraries run on: see `check_symbols` where they are made."""
    return f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}"


def run_pip(source: Path, out: Path, settings: list[str]) -> None:
    """Packs a source. It takes setuptools from the package index, as pyproject.toml says."""
    options = [f"--config-settings={setting}" for setting in settings]
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run(
        [*command, *options, "--wheel-dir", str(out), str(source)], check=True, stdin=subprocess.DEVNULL
    )


if __name__ == "__main__":
    raise SystemExit(main())
