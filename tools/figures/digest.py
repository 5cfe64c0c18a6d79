"""Digests of functions, by which a figure knows whether the code that it measured has changed.

A digest covers the syntax tree of a function with those nested in it. Names of locals and parameters, docstrings,
annotations, comments and layout do not change it; module constants and class bodies are not covered.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections.abc import Container, Iterator, Mapping

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
CHARS = 8


def digests_of(source: str, wanted: Container[str] | None = None) -> dict[str, str]:
    """The digest of each function of a module and method of its classes, by qualified name. wanted: names to look for;
    None: all."""
    found = _functions(ast.parse(source).body, "")
    return {name: digest(node) for name, node in found if wanted is None or name in wanted}


def outermost(name: str) -> str:
    """The function that contains the code with this qualified name; empty: none does."""
    outer = name.partition(".<locals>")[0]
    return "" if "<" in outer else outer


def digest(function: FUNCTIONS) -> str:
    """What the function does, as eight hexadecimal digits."""
    plain = _Plain(_locals(function)).visit(copy.deepcopy(function))
    return hashlib.sha256(ast.dump(plain, annotate_fields=False).encode()).hexdigest()[:CHARS]


def total(code: Mapping[str, Mapping[str, str]]) -> str:
    """One digest of many: functions with theirs, by file."""
    rows = [f"{file} {name} {value}" for file, of_file in code.items() for name, value in of_file.items()]
    return hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()[: 2 * CHARS]


def _functions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, FUNCTIONS]]:
    for node in body:
        if isinstance(node, FUNCTIONS):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _functions([part for part in ast.walk(node) if isinstance(part, FUNCTIONS)], prefix)


def _locals(function: FUNCTIONS) -> dict[str, str]:
    """A number for each local name, in the order of first appearance."""
    found: dict[str, str] = {}
    kept = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
    for node in ast.walk(function):
        name = ""
        if isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            name = node.id
        elif isinstance(node, FUNCTIONS) and node is not function:
            name = node.name
        elif isinstance(node, ast.ExceptHandler):
            name = node.name or ""
        if name and name not in kept:
            found.setdefault(name, f"v{len(found)}")
    return found


class _Plain(ast.NodeTransformer):
    """Takes out what does not change what a function does."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._names.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg, node.annotation = self._names.get(node.arg, node.arg), None
        return node

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.AST:
        node.names = [self._names.get(name, name) for name in node.names]
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.name = self._names.get(node.name or "", node.name)
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return self.generic_visit(ast.Assign(targets=[node.target], value=node.value))

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def _function(self, node: FUNCTIONS) -> ast.AST:
        node.name, node.returns = self._names.get(node.name, ""), None
        return self.generic_visit(node)
