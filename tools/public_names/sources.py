"""Syntax trees of the product, for names that no object can be asked for."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tools.packages import PRODUCT
from tools.structure.sources import GENERATED

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
ROOT = Path(__file__).resolve().parents[2]


def modules_with(*words: str) -> Iterator[ast.Module]:
    """Each source file of the product that contains one of the words, but no generated one."""
    for text in _texts():
        if any(word in text for word in words):
            yield ast.parse(text)


@cache
def _texts() -> tuple[str, ...]:
    files = [path for package in PRODUCT for path in sorted((ROOT / package).rglob("*.py"))]
    return tuple(path.read_text() for path in files if not path.name.endswith(GENERATED))


class Flow:
    """Finds what flows into an expression of a module: by local names, and by functions and constants of the module.

    Types are not followed: every function of the module that has the name of a call counts.
    """

    def __init__(self, module: ast.Module) -> None:
        self._module = module
        self._functions = {node.name: node for node in ast.walk(module) if isinstance(node, FUNCTIONS)}
        self._parents = {child: node for node in ast.walk(module) for child in ast.iter_child_nodes(node)}

    def calls(self) -> Iterator[ast.Call]:
        """All calls of the module."""
        return (node for node in ast.walk(self._module) if isinstance(node, ast.Call))

    def into(self, expression: ast.expr) -> Iterator[ast.AST]:
        """All nodes of `expression` and of what flows into it."""
        todo: list[ast.AST] = [expression]
        seen = set[ast.AST]()
        while todo:
            for node in ast.walk(todo.pop()):
                if node in seen:
                    continue
                seen.add(node)
                yield node
                if isinstance(node, ast.Name) and not self._is_walked(node):
                    todo += self._values(node)

    def _values(self, name: ast.Name) -> Iterator[ast.AST]:
        if name.id in self._functions:
            yield from _results(self._functions[name.id])
        node: ast.AST = name
        while node in self._parents:
            node = self._parents[node]
            if isinstance(node, COMPREHENSIONS):
                found = list(_assigned(node.generators, name.id))
            elif isinstance(node, FUNCTIONS):
                found = list(_assigned(_own_nodes(node), name.id))
            else:
                found = list(_assigned(node.body, name.id)) if isinstance(node, ast.Module) else []
            if found:
                yield from found
                return

    def _is_walked(self, name: ast.Name) -> bool:
        """True for `name.items()` and `len(name)`: the keys are used as values, or not at all."""
        parent = self._parents.get(name)
        if isinstance(parent, ast.Call):
            return isinstance(parent.func, ast.Name) and parent.func.id == "len"
        return isinstance(parent, ast.Attribute) and parent.attr in ("items", "values")


def _results(function: ast.AST) -> Iterator[ast.AST]:
    """Expressions that a function returns or yields."""
    for node in ast.walk(function):
        if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom) and node.value is not None:
            yield node.value


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Nodes of a function without the loops of its comprehensions, whose names are their own."""
    return (node for node in ast.walk(function) if not isinstance(node, ast.comprehension))


def _assigned(nodes: Iterable[ast.AST], name: str) -> Iterator[ast.AST]:
    """Values that `nodes` give to `name`, by assignment, as an item of it, or in turn by a loop."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign | ast.AugAssign) and node.value is not None:
            targets, value = [node.target], node.value
        elif isinstance(node, ast.For | ast.comprehension):
            targets, value = [node.target], node.iter
        else:
            continue
        for target in targets:
            if any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(target)):
                yield value
                yield from (part.slice for part in ast.walk(target) if isinstance(part, ast.Subscript))


def strings_of_keys(nodes: Iterator[ast.AST]) -> Iterator[str]:
    """Constant keys of dictionaries among `nodes`, and bare constants in place of an index."""
    for node in nodes:
        if isinstance(node, ast.Dict):
            yield from (
                key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)
            )
