"""The Python files of some packages of a checkout, parsed."""

from __future__ import annotations

import ast
import gc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.packages import PRODUCT

GENERATED = ("_pb2.py", "_pb2_grpc.py")
"""Ends of the names of generated files, which are left out."""


@dataclass(frozen=True)
class Module:
    """One file."""

    name: str
    """Dotted; of a package that of its folder."""
    path: Path
    """From the root of the checkout."""
    text: str
    parsed: ast.Module

    @property
    def folder(self) -> tuple[str, ...]:
        """Names of the folders from the root down to the file."""
        return self.path.parent.parts

    @property
    def package(self) -> str:
        """The top-level folder."""
        return self.path.parts[0]


def read_modules(tree: Path, packages: Sequence[str] = PRODUCT) -> dict[str, Module]:
    """Modules by name, without generated ones. A package that is not there has none."""
    paths = [path for package in packages for path in sorted((tree / package).rglob("*.py"))]
    was_enabled = gc.isenabled()
    gc.disable()  # it takes twice the time of parsing, and syntax trees have no cycles
    try:
        modules = [_read(tree, path) for path in paths if not path.name.endswith(GENERATED)]
    finally:
        if was_enabled:
            gc.enable()
    return {module.name: module for module in modules}


def _read(tree: Path, path: Path) -> Module:
    text, relative = path.read_text(), path.relative_to(tree)
    return Module(_name_of(relative), relative, text, ast.parse(text))


def _name_of(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")
