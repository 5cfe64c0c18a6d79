"""The packages of a checkout, and which checks each is under: the one list that tests, lint, wheels and images read.

    python -m tools.packages typed     # the names of those that mypy reads, on one line

A new top-level folder with Python files needs a row here.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Role(Enum):
    """What a package is for."""

    BASE = "what all services import"
    SERVICE = "one of the services"
    TOOL = "development, from a checkout"
    TEST = "tests"
    SCRIPT = "files that are run, and no package"


@dataclass(frozen=True)
class Package:
    """One top-level folder with Python files."""

    name: str
    role: Role

    @property
    def is_product(self) -> bool:
        """Whether it is packed into wheels and images, and its counts have budgets."""
        return self.role in (Role.BASE, Role.SERVICE)

    @property
    def is_typed(self) -> bool:
        """Whether mypy reads all of it."""
        return self.is_product or self.role is Role.TOOL

    @property
    def is_mapped(self) -> bool:
        """Whether docs/architecture.md has a row for each of its folders."""
        return self.role is not Role.SCRIPT


PACKAGES = (
    Package("signalbox", Role.BASE),
    Package("scheduler_svc", Role.SERVICE),
    Package("worker_svc", Role.SERVICE),
    Package("frontend_svc", Role.SERVICE),
    Package("tools", Role.TOOL),
    Package("tests", Role.TEST),
    Package("protos", Role.SCRIPT),
)

NAMES = tuple(package.name for package in PACKAGES)
PRODUCT = tuple(package.name for package in PACKAGES if package.is_product)
SERVICES = tuple(package.name for package in PACKAGES if package.role is Role.SERVICE)
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
    "product": PRODUCT,
    "services": SERVICES,
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
