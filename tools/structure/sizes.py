"""Sizes of folders and functions, and lines of code."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tools.packages import GENERATED
from tools.structure.sources import Module, read_modules

MOST_FILES = 13
"""Python files of a folder, `__init__.py` included, above which it counts as wide."""
MOST_LINES = 80
"""Lines of a function, from `def` to its end, above which it counts as long."""
NATIVE = ("*.cpp", "*.h")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def files_per_folder(modules: Iterable[Module]) -> Counter[str]:
    """Python files by folder."""
    return Counter(str(module.path.parent) for module in modules)


def function_lengths(modules: Iterable[Module]) -> list[int]:
    """Lines of all functions and methods, ascending."""
    return sorted(length for module in modules for length in _lengths(module.parsed))


def percentile_95(lengths: Sequence[int]) -> int:
    """The length that 95 % of `lengths`, which ascend, do not exceed; 0: there are none."""
    return lengths[int(len(lengths) * 0.95)] if lengths else 0


def _lengths(parsed: ast.Module) -> Iterator[int]:
    for node in ast.walk(parsed):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


def lines_of_code(tree: Path, package: str) -> dict[str, int]:
    """Lines of a package by language, without blank lines, comments, docstrings and generated files."""
    native = [path for pattern in NATIVE for path in (tree / package).rglob(pattern)]
    return {
        "python": sum(python_lines(module) for module in read_modules(tree, [package]).values()),
        "c++": sum(native_lines(path.read_text()) for path in native if not _is_generated(tree, path)),
    }


def _is_generated(tree: Path, path: Path) -> bool:
    return str(path.parent.relative_to(tree)).startswith(GENERATED)


def python_lines(module: Module) -> int:
    """Lines with code. Strings that stand alone are docstrings; blank lines of other strings do not count."""
    documented, quoted = set[int](), set[int]()
    for node in ast.walk(module.parsed):
        if isinstance(node, ast.Expr) and _is_string(node.value):
            documented.update(_lines_of(node))
        elif isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno != node.lineno:
            quoted.update(_lines_of(node))
    return sum(
        bool(line.strip()) and number not in documented and (number in quoted or line.strip()[0] != "#")
        for number, line in enumerate(module.text.splitlines(), 1)
    )


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _lines_of(node: ast.expr | ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def native_lines(text: str) -> int:
    """Lines with code of a C++ file, whose strings hold no comment signs."""
    return sum(bool(line.strip()) for line in _COMMENT.sub("", text).splitlines())
