"""Reads from one Python source what it may lead to: imports, names of modules and files in strings, fixtures."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

MODULE = re.compile(r"[A-Za-z_][\w-]*(\.[A-Za-z_]\w*)*(\.|:\w+(\.\w+)*)?")
"""A module, an attribute of one, `module:attribute`, or with a final dot the beginning of modules' names."""
FILE = re.compile(r"[\w.-]+(/[\w.-]+)*/?")
ASK_FOR_FIXTURES = {"usefixtures", "getfixturevalue"}


@dataclass(frozen=True)
class Source:
    """What one file names, as far as it may be a file of the same tree."""

    imports: tuple[str, ...] = ()
    """Full names, `module.name` for `from module import name`; imports inside functions too, for type checking not."""
    modules: tuple[str, ...] = ()
    """Strings that may name a module or something in it (importlib, `-m`, monkeypatch); with a final dot a prefix."""
    files: tuple[str, ...] = ()
    """Strings, and strings joined by `/`, that may be a path below the root, or below the folder of the file."""
    folders: tuple[str, ...] = ()
    """Like `files`, of strings joined by `/` to something: may also be one word and name a folder."""
    asks: tuple[str, ...] = ()
    """Names that pytest may take for fixtures: arguments of functions, `usefixtures`."""
    defines: tuple[str, ...] = ()
    """Names at the top level, and names given to fixtures."""
    is_for_all: bool = False
    """As a conftest.py it reaches each test below it: it has hooks or a fixture with `autouse`."""


def read_source(text: str, packages: frozenset[str]) -> Source:
    """What `text` names in `packages`, the top-level folders with Python files. Raises SyntaxError."""
    tree = ast.parse(text)
    nodes = list(_walk(tree))
    docstrings = {id(node.body[0].value) for node in nodes if _has_docstring(node)}  # type: ignore[attr-defined]
    strings = {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    }
    joined = {path for node in nodes if isinstance(node, ast.BinOp) and (path := _joined(node))}
    defines = set(_bound(tree))
    return Source(
        imports=_sorted(name for node in nodes for name in _imported(node) if _top(name) in packages),
        modules=_sorted(text for text in strings if MODULE.fullmatch(text) and _top(text) in packages),
        files=_sorted(text for text in strings if ("/" in text or "." in text) and FILE.fullmatch(text)),
        folders=_sorted(joined),
        asks=_sorted(name for node in nodes for name in _asked(node)),
        defines=_sorted(defines | {name for node in nodes for name in _renamed(node)}),
        is_for_all=any(name.startswith("pytest_") for name in defines) or any(map(_is_autouse, nodes)),
    )


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING`."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            todo += node.orelse
            continue
        yield node
        todo += ast.iter_child_nodes(node)


def _sorted(names: Iterator[str] | set[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


def _top(name: str) -> str:
    return re.split(r"[.:]", name, maxsplit=1)[0].replace("-", "_")


def _has_docstring(node: ast.AST) -> bool:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _joined(node: ast.BinOp) -> str:
    """`docs/design.md` of `ROOT / "docs" / "design.md"`; empty for any other operation."""
    parts: list[str] = []
    at: ast.expr = node
    while isinstance(at, ast.BinOp) and isinstance(at.op, ast.Div):
        if not (isinstance(at.right, ast.Constant) and isinstance(at.right.value, str)):
            parts.clear()  # what comes after is below a folder that nobody can tell
        else:
            parts.append(at.right.value)
        at = at.left
    return "/".join(reversed(parts)).strip("/")


def _asked(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ASK_FOR_FIXTURES:
        yield from (str(arg.value) for arg in node.args if isinstance(arg, ast.Constant))


def _bound(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


def _renamed(node: ast.AST) -> Iterator[str]:
    """The name that `pytest.fixture(name=...)` gives."""
    if isinstance(node, ast.keyword) and node.arg == "name" and isinstance(node.value, ast.Constant):
        yield str(node.value.value)


def _is_autouse(node: ast.AST) -> bool:
    return isinstance(node, ast.keyword) and node.arg == "autouse"
