"""Marks each statement of the measured files when it runs, in a file that all processes share.

An interpreter imports this at its start where this folder is in PYTHONPATH. It imports nothing of the project. Without
SIGNALBOX_LINES it does nothing. Marks are bytes of a shared mapping, so processes that are killed have left theirs, and
forks need nothing. The code with its marks is in the interpreter's cache of bytecode, whose place PYTHONPYCACHEPREFIX
says.
"""

from __future__ import annotations

import ast
import json
import mmap
import os
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

FOLDER = os.environ.get("SIGNALBOX_LINES", "")
"""Where `index.json` and `hits` are; empty: nothing is measured."""
NAME = "_signalbox_hits"
"""Of the mapping, in the globals of each measured module."""
HITS: Any = None
"""One byte for each line of all files; 1: a statement that begins there has run."""
_BLOCKS = ("body", "orelse", "finalbody")


def blocks(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    """All lists of statements, without those that only type checkers read."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        is_for_types = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and not (is_for_types and name == "body"):
                todo += [each for each in value if isinstance(each, ast.AST)]
                if name in _BLOCKS and value and isinstance(value[0], ast.stmt):
                    yield value
            elif isinstance(value, ast.AST):
                todo.append(value)


def counts(statement: ast.stmt) -> bool:
    """Whether it is code: no docstring, and no import of what the compiler knows."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return False
    return not (isinstance(statement, ast.ImportFrom) and statement.module == "__future__")


def lines(source: str) -> set[int]:
    """Numbers of the lines at which statements of a file begin that can be marked."""
    return {each.lineno for block in blocks(ast.parse(source)) for each in block if counts(each)}


def marked(source: bytes | str, path: str, first: int) -> ast.Module:
    """A file's tree, in which each statement is preceded by its mark. first: number of the file's first mark."""
    tree = ast.parse(source, path)
    for block in list(blocks(tree)):
        block[:] = [part for each in block for part in (*_mark(each, first), each)]
    start = next((at for at, each in enumerate(tree.body) if counts(each)), len(tree.body))
    tree.body[start:start] = ast.parse(f"from sitecustomize import HITS as {NAME}").body
    return ast.fix_missing_locations(tree)


def _mark(statement: ast.stmt, first: int) -> list[ast.stmt]:
    if not counts(statement):
        return []
    mark = ast.parse(f"{NAME}[{first + statement.lineno - 1}] = 1").body[0]
    for node in ast.walk(mark):
        ast.copy_location(node, statement)
    return [mark]


def install(folder: Path) -> mmap.mmap:
    """From now on modules of the index are loaded with their marks. Returns these."""
    index: dict[str, int] = json.loads((folder / "index.json").read_text())
    with (folder / "hits").open("r+b") as file:
        hits = mmap.mmap(file.fileno(), 0)
    compile_source: Any = SourceFileLoader.source_to_code

    def source_to_code(loader: SourceFileLoader, data: Any, path: str, **options: Any) -> Any:
        first = index.get(os.path.realpath(path))
        if first is not None and not isinstance(data, ast.AST):
            data = marked(data, path, first)
        return compile_source(loader, data, path, **options)

    SourceFileLoader.source_to_code = source_to_code  # type: ignore[assignment, method-assign]
    return hits


if FOLDER and __name__ == "sitecustomize":
    try:
        HITS = install(Path(FOLDER))
    except OSError as error:
        print(f"line coverage: {error}", file=sys.stderr)
