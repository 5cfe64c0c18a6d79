"""Writes what each image is made of, as CycloneDX bills of materials, from its lock.

make sbom      # dist/sbom/scheduler.cdx.json and so on
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tools.lock import ALL, ROOT, Lock

IMAGES = tuple(lock for lock in ALL if lock.name not in ("ci", "dev", "release"))
"""The locks that images are made from."""


def write_sbom(lock: Lock, path: Path) -> None:
    """The packages of one image, with their hashes. Raises CalledProcessError, after cyclonedx-py has said why."""
    command = ["cyclonedx-py", "requirements", str(lock.path), "--pyproject", str(ROOT / "pyproject.toml")]
    options = ["--output-format", "JSON", "--output-reproducible", "--validate", "--output-file", str(path)]
    subprocess.run([*command, *options], check=True)


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.sbom", description="Write bills of materials.")
    parser.add_argument("folder", type=Path, help="where to")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for lock in IMAGES:
        path = folder / f"{lock.name}.cdx.json"
        try:
            write_sbom(lock, path)
        except subprocess.CalledProcessError:
            print(f"sbom: {path} cannot be made", file=sys.stderr)
            return 1
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
