"""The shape of a checkout in figures: files per folder, lines, lengths of functions, chains and circles of imports.

    python -m tools.structure                    # of this checkout
    python -m tools.structure --tree ../before   # of another one

Product are signalbox, scheduler_svc, worker_svc and frontend_svc, without generated messages. Imports for type checking
count in circles, not in chains. One JSON object on stdout.
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

PACKAGES = ("signalbox", "scheduler_svc", "worker_svc", "frontend_svc")
GENERATED = ("_pb2.py", "_pb2_grpc.py")
Graph = Mapping[str, frozenset[str]]


def main() -> None:
    """Prints the figures of a tree."""
    parser = argparse.ArgumentParser(prog="python -m tools.structure", description=__doc__)
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parents[1], help="a checkout")
    print(json.dumps(measure(parser.parse_args().tree), indent=2))


def measure(tree: Path) -> dict[str, object]:
    """Figures of the product in `tree`."""
    files = [path for package in PACKAGES for path in sorted((tree / package).rglob("*.py"))]
    sources = {path: path.read_text() for path in files if not path.name.endswith(GENERATED)}
    trees = {path: ast.parse(source) for path, source in sources.items()}
    lengths = sorted(length for parsed in trees.values() for length in _function_lengths(parsed))
    folders = Counter(str(path.parent.relative_to(tree)) for path in sources)
    lines = {str(path.relative_to(tree)): source.count("\n") for path, source in sources.items()}
    modules = {_module(path.relative_to(tree)): parsed for path, parsed in trees.items()}
    return {
        "files": len(sources),
        "lines": sum(lines.values()),
        "lines_without_benches": sum(count for path, count in lines.items() if not _is_bench(path)),
        "largest_file": max(lines.values()),
        "folders": len(folders),
        "most_files_per_folder": dict(folders.most_common(5)),
        "functions": len(lengths),
        "function_lines_median": statistics.median(lengths),
        "function_lines_p95": lengths[int(len(lengths) * 0.95)],
        "function_lines_max": lengths[-1],
        "longest_import_chain": _longest_chain(_graph(modules, for_types=False)),
        "import_circles": _circles(_graph(modules, for_types=False)),
        "import_circles_with_types": _circles(_graph(modules, for_types=True)),
    }


def _is_bench(path: str) -> bool:
    return "bench" in path or "plots" in path or path.endswith("planning.py")


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _function_lengths(parsed: ast.Module) -> Iterator[int]:
    for node in ast.walk(parsed):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


def _graph(modules: Mapping[str, ast.Module], *, for_types: bool) -> Graph:
    """Which module imports which, by its top level."""
    return {
        name: frozenset(_imported(parsed.body, set(modules), for_types=for_types)) - {name}
        for name, parsed in modules.items()
    }


def _imported(body: list[ast.stmt], modules: set[str], *, for_types: bool) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in modules else node.module for name in names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.If) and (for_types or "TYPE_CHECKING" not in ast.dump(node.test)):
            yield from _imported(node.body, modules, for_types=for_types)


def _longest_chain(graph: Graph) -> int:
    """Modules on the longest way from one that nobody imports to one that imports nothing. There are no circles."""

    @cache
    def length(name: str) -> int:
        return 1 + max((length(other) for other in graph[name] if other in graph), default=0)

    return max(map(length, graph)) if not _circles(graph) else 0


def _circles(graph: Graph) -> list[list[str]]:
    """Groups of modules each of which reaches all others of its group."""
    reach = {name: _reachable(graph, name) for name in graph}
    groups = {
        frozenset(other for other in reach[name] if name in reach[other])
        for name in graph
        if name in reach[name]
    }
    return sorted(sorted(group) for group in groups)


def _reachable(graph: Graph, start: str) -> set[str]:
    seen, todo = set[str](), [start]
    while todo:
        for other in graph[todo.pop()]:
            if other in graph and other not in seen:
                seen.add(other)
                todo.append(other)
    return seen


if __name__ == "__main__":
    main()
