"""Circles and chains of a graph of imports."""

from __future__ import annotations

from functools import cache

from tools.structure.imports import Graph


def circles(graph: Graph) -> list[list[str]]:
    """Groups of two modules or more, each of which reaches all others of its group."""
    groups: list[list[str]] = []
    numbers: dict[str, int] = {}
    """Order in which modules were met."""
    lowest: dict[str, int] = {}
    """The earliest module that can be reached and is still open."""
    pending: list[str] = []
    """Modules met whose group is not complete (Tarjan 1972)."""
    for root in graph:
        path = [(root, iter(sorted(graph[root])))] if root not in numbers else []
        while path:
            name, others = path[-1]
            if name not in numbers:
                numbers[name] = lowest[name] = len(numbers)
                pending.append(name)
            for other in others:
                if other not in numbers:
                    path.append((other, iter(sorted(graph[other]))))
                    break
                if other in pending:
                    lowest[name] = min(lowest[name], numbers[other])
            else:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[name])
                if lowest[name] == numbers[name]:
                    place = pending.index(name)
                    groups.append(sorted(pending[place:]))
                    del pending[place:]
    return sorted(group for group in groups if len(group) > 1)


def longest_chain(graph: Graph) -> int:
    """Modules on the longest way from one that nobody imports to one that imports nothing; 0: there are circles."""

    @cache
    def length(name: str) -> int:
        return 1 + max((length(other) for other in graph[name]), default=0)

    return 0 if circles(graph) else max(map(length, graph), default=0)
