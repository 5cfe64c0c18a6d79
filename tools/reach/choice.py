"""The tests that a change can reach."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tools.packages import PRODUCT
from tools.reach.graph import Graph, mirrors
from tools.reach.rules import SMOKE, is_about, is_always_run, stand_ins, subjects_of
from tools.reach.tree import Tree


@dataclass(frozen=True)
class Choice:
    """Which test files are to run, and why the others are not."""

    selected: frozenset[str]
    """Whole files, smoke tests left out."""
    left_out: frozenset[str]
    everything: str = ""
    """Why all are selected; empty: they are not."""

    @property
    def smoke(self) -> list[str]:
        """Names of the single tests of files that are left out otherwise."""
        return [name for name in SMOKE.values() if name.partition("::")[0] in self.left_out]


def choose(tree: Tree, changed: Iterable[str], more: Iterable[str] = ()) -> Choice:
    """The test files of `tree` that a change of these paths reaches, and those in `more`.

    A path that is not in the tree was deleted."""
    changed = frozenset(changed)
    graph = Graph(tree, changed - tree.paths)
    tests = frozenset(graph.tests)
    files = set[str]()
    for path in changed:
        standing = frozenset() if is_source(path) else stand_ins(path, graph.paths)
        if standing is None:
            return Choice(tests, frozenset(), f"{path} may reach any test")
        files |= {path, *standing}
    selected = reached(graph, files) | {test for test in tests if is_always_run(test)} | set(more)
    return Choice(tests & selected, tests - selected)


def reached(graph: Graph, files: Iterable[str]) -> set[str]:
    """Test files that lead to one of `files` by imports and names, or are about it; in the mirror of a service those
    that lead to it through the root of the service, too."""
    files = frozenset(files)
    found = graph.users_of(files)
    for service in PRODUCT:
        users = {path for path in graph.users_of(files, service) if mirrors(path, service)}
        found |= {path for path in users if subjects_of(path) is None}
    about = {test for test in graph.tests if any(is_about(test, path) for path in files)}
    return (found | about) & set(graph.tests)


def is_source(path: str) -> bool:
    """Whether a file is a node of the graph by itself: a Python file in a folder."""
    return path.endswith(".py") and "/" in path
