"""Downloads the wheels that a machine with torch, triton and transformers lacks, for `python -m benchmarks.gpu`.

    python -m tools.gpu_wheels [DIRECTORY] [--python 3.12]

For Linux on x86_64, in the versions of the services' locks. Of these the bench unpacks what a machine has not.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu.wheels import FOLDER, normal

LOCKS = Path(__file__).resolve().parent.parent / "locks"
SERVICES = ("scheduler", "frontend", "worker")
THERE = (
    *("torch", "triton", "transformers", "tokenizers", "safetensors", "huggingface-hub", "hf-xet", "regex"),
    *("pyyaml", "packaging", "tqdm", "filelock", "fsspec", "numpy", "sympy", "mpmath", "networkx", "jinja2"),
    *("markupsafe", "setuptools"),
)
"""What torch and transformers need in all their versions."""
PLATFORMS = ("manylinux2014_x86_64", *(f"manylinux_2_{minor}_x86_64" for minor in range(17, 40)))
"""Up to the glibc of Ubuntu 24.04."""
MOST_BYTES = 30 << 20
"""Of all wheels: they have to fit where files go by hand."""


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.gpu_wheels", description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, nargs="?", default=FOLDER, help="emptied first (%(default)s)")
    parser.add_argument("--python", default="3.12", metavar="VERSION", help="of that machine (%(default)s)")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.directory, ignore_errors=True)
    pins = wanted()
    try:
        subprocess.run(command(pins, arguments.directory, arguments.python), check=True)
    except subprocess.CalledProcessError as error:
        print(f"gpu_wheels: pip failed with status {error.returncode}", file=sys.stderr)
        return 1
    size = sum(path.stat().st_size for path in arguments.directory.glob("*.whl"))
    print(f"{len(pins)} wheels, {size / (1 << 20):.1f} MiB, in {arguments.directory}")
    if size > MOST_BYTES:
        print(f"gpu_wheels: that is more than {MOST_BYTES >> 20} MiB", file=sys.stderr)
        return 1
    return 0


def wanted() -> list[str]:
    """`name==version` of what the services' locks have, but for what is there."""
    pins: dict[str, str] = {}
    for service in SERVICES:
        pins |= locked((LOCKS / f"{service}.txt").read_text())
    return [f"{name}=={version}" for name, version in sorted(pins.items()) if name not in THERE]


def locked(text: str) -> dict[str, str]:
    """Versions by package, of a lock."""
    return {normal(name): version for name, version in re.findall(r"^([\w.-]+)==([\w.+!-]+)", text, re.M)}


def command(pins: list[str], directory: Path, python: str) -> list[str]:
    """Of pip."""
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    return [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps"),
        *("--only-binary=:all:", "--implementation", "cp", "--python-version", python, *platforms),
        *("--dest", str(directory), *pins),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
