"""The counts that have budgets, and further figures of a checkout."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from tools.packages import MAPPED, PRODUCT
from tools.structure import sizes
from tools.structure.circles import circles, longest_chain
from tools.structure.imports import import_graph, top_level_graph
from tools.structure.rooms import Pair, two_way_pairs
from tools.structure.sources import Module, read_modules

Counts = dict[str, int]
"""By dotted name."""
BETWEEN = "between_packages"
"""Stands for the package of a pair or a circle that is not in one package."""


def shape_counts(modules: Mapping[str, Module], packages: Sequence[str] = PRODUCT) -> Counts:
    """Counts of folders, imports and functions of `packages`."""
    modules = {name: module for name, module in modules.items() if module.package in packages}
    graph = import_graph(modules)
    pairs = Counter(_package_of_pair(pair) for pair in two_way_pairs(modules, graph))
    groups = Counter(_package_of_circle(group) for group in circles(graph))
    counts = {}
    for place in (BETWEEN, *packages):
        counts[f"two_way_pairs.{place}"] = pairs[place]
        counts[f"circles.{place}"] = groups[place]
    lengths = {package: sizes.function_lengths(_of(package, modules)) for package in packages}
    for package in packages:
        folders = sizes.files_per_folder(_of(package, modules))
        counts[f"wide_folders.{package}"] = _number_above(sizes.MOST_FILES, folders.values())
        counts[f"long_functions.{package}"] = _number_above(sizes.MOST_LINES, lengths[package])
    counts["function_lines.p95"] = sizes.percentile_95(sorted(chain.from_iterable(lengths.values())))
    return counts


def further_figures(tree: Path, modules: Mapping[str, Module]) -> dict[str, object]:
    """Figures that have no budget. Generated files are not in them, and tests in the lines of code only."""
    lengths = sizes.function_lengths(modules.values())
    lines = {name: module.text.count("\n") for name, module in modules.items()}
    graph = import_graph(modules)
    return {
        "lines_of_code": {package: sizes.lines_of_code(tree, package) for package in MAPPED},
        "files": len(modules),
        "lines": sum(lines.values()),
        "largest_file": max(lines.values()),
        "folders": len(sizes.files_per_folder(modules.values())),
        "most_files_per_folder": dict(sizes.files_per_folder(modules.values()).most_common(5)),
        "functions": len(lengths),
        "function_lines_median": statistics.median(lengths),
        "function_lines_max": lengths[-1],
        "longest_import_chain": longest_chain(top_level_graph(modules, for_types=False)),
        "two_way_pairs": [_words(pair) for pair in two_way_pairs(modules, graph)],
        "circles": circles(graph),
    }


def measure(tree: Path) -> tuple[Counts, dict[str, object]]:
    """Counts of the shape of `tree`, and further figures."""
    modules = read_modules(tree)
    return shape_counts(modules), further_figures(tree, modules)


def _of(package: str, modules: Mapping[str, Module]) -> list[Module]:
    return [module for module in modules.values() if module.package == package]


def _number_above(limit: int, values: Iterable[int]) -> int:
    return sum(value > limit for value in values)


def _package_of_pair(pair: Pair) -> str:
    return pair.parent.partition("/")[0] or BETWEEN


def _package_of_circle(group: Sequence[str]) -> str:
    packages = {name.partition(".")[0] for name in group}
    return packages.pop() if len(packages) == 1 else BETWEEN


def _words(pair: Pair) -> str:
    path = f"{pair.parent}/" if pair.parent else ""
    return f"{path}{pair.first} {pair.forward}, {path}{pair.second} {pair.backward}"
