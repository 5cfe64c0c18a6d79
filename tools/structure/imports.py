"""Which module imports which."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping

from tools.structure.sources import Module

Graph = Mapping[str, frozenset[str]]
"""By module, the modules that it imports, itself left out."""
Names = Iterator[str]


def import_graph(modules: Mapping[str, Module]) -> Graph:
    """All imports: those inside functions, for type checking and by string, too."""
    return _graph(modules, _all_imports)


def top_level_graph(modules: Mapping[str, Module], *, for_types: bool) -> Graph:
    """Imports at the top level of files; for_types: with those for type checking."""

    def imports(module: Module) -> Names:
        return _imports_at_top(module, module.parsed.body, for_types=for_types)

    return _graph(modules, imports)


def _graph(modules: Mapping[str, Module], imports: Callable[[Module], Names]) -> Graph:
    return {name: frozenset(_known(imports(module), modules)) - {name} for name, module in modules.items()}


def _known(names: Iterable[str], modules: Mapping[str, Module]) -> Names:
    """The modules that are meant: `a.b.c` is `a.b` where `c` is a name in it."""
    for name in names:
        if name in modules:
            yield name
        elif (parent := name.rpartition(".")[0]) in modules:
            yield parent


def _all_imports(module: Module) -> Names:
    for node in ast.walk(module.parsed):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imported(module, node)
        elif isinstance(node, ast.JoinedStr) and node.values and isinstance(node.values[0], ast.Constant):
            # f"package.{name}": any module of the package, so the package.
            yield from _named(str(node.values[0].value).removesuffix("."))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _named(node.value)


def _imports_at_top(module: Module, body: list[ast.stmt], *, for_types: bool) -> Names:
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imported(module, node)
        elif isinstance(node, ast.If) and (for_types or "TYPE_CHECKING" not in ast.dump(node.test)):
            yield from _imports_at_top(module, node.body, for_types=for_types)


def _imported(module: Module, node: ast.Import | ast.ImportFrom) -> Names:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    parts = list(module.folder[: len(module.folder) - node.level + 1]) if node.level else []
    base = ".".join([*parts, *([node.module] if node.module else [])])
    yield from (f"{base}.{alias.name}" for alias in node.names)


def _named(text: str) -> Names:
    """The module that a string names, as `a.b` or `a.b:function`. A word without a dot names none."""
    name = text.partition(":")[0]
    if "." in name and name.replace(".", "_").isidentifier():
        yield name
