"""The packages of a checkout, and which checks each is under: the one list that tests, lint, wheels and images read.

    python -m tools.packages typed     # the names of those that mypy reads, on one line

A new top-level folder with Python files needs a row here.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Package:
    """One top-level folder with Python files."""

    name: str
    is_service: bool = False
    """It runs as a process; no service imports another."""
    is_packed: bool = True
    """Wheels and images have it."""
    is_product: bool = True
    """Its counts have budgets; rules of imports and words hold for it."""
    is_typed: bool = True
    """mypy reads all of it."""
    is_mapped: bool = True
    """docs/architecture.md has a row for each of its folders."""


PACKAGES = (
    Package("signalbox"),
    Package("scheduler_svc", is_service=True),
    Package("worker_svc", is_service=True),
    Package("frontend_svc", is_service=True),
    Package("benchmarks", is_packed=False, is_product=False),
    Package("tools", is_packed=False, is_product=False),
    Package("tests", is_packed=False, is_product=False, is_typed=False),
    Package("protos", is_packed=False, is_product=False, is_typed=False, is_mapped=False),
)

NAMES = tuple(package.name for package in PACKAGES)
SERVICES = tuple(package.name for package in PACKAGES if package.is_service)
PACKED = tuple(package.name for package in PACKAGES if package.is_packed)
PRODUCT = tuple(package.name for package in PACKAGES if package.is_product)
TYPED = tuple(package.name for package in PACKAGES if package.is_typed)
MAPPED = tuple(package.name for package in PACKAGES if package.is_mapped)

UNCOUNTED = ("signalbox.benchmarks",)
"""Modules of the product whose calls are no service's: benches, which no wheel has."""
GENERATED = ("signalbox/v1", "signalbox/vllm")
"""Folders of generated messages."""
BUILDS = ("build", "dist")
"""Folders that builds leave behind."""

_LISTS: dict[str, Sequence[str]] = {
    "all": NAMES,
    "services": SERVICES,
    "packed": PACKED,
    "product": PRODUCT,
    "typed": TYPED,
    "mapped": MAPPED,
}


def unlisted(tree: Path) -> list[str]:
    """Top-level folders of a checkout that have Python files and no row here; hidden ones and builds need none."""
    folders = [path for path in sorted(tree.iterdir()) if path.is_dir() and path.name[0] != "."]
    return [
        path.name
        for path in folders
        if path.name not in (*NAMES, *BUILDS) and next(path.rglob("*.py"), None) is not None
    ]


def main() -> None:
    """Prints the names of one list."""
    parser = argparse.ArgumentParser(prog="python -m tools.packages", description="Names of packages.")
    parser.add_argument("list", choices=_LISTS, help="which")
    print(*_LISTS[parser.parse_args().list])


if __name__ == "__main__":
    main()
