"""Rooms: folders of one parent. Two that import each other are one with two names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from tools.structure.imports import Graph
from tools.structure.sources import Module


class Pair(NamedTuple):
    """Two sibling folders that import each other, and the number of imports each way."""

    parent: str
    """Path of the folder that both are in; empty: the root."""
    first: str
    second: str
    forward: int
    backward: int


def two_way_pairs(modules: Mapping[str, Module], graph: Graph) -> list[Pair]:
    """All such pairs. An import from anywhere inside a folder to anywhere inside its sibling counts."""
    doors = Counter(
        door
        for name, others in graph.items()
        for other in others
        if (door := _door(modules[name].folder, modules[other].folder)) is not None
    )
    return sorted(
        Pair("/".join(parent), here, there, count, doors[parent, there, here])
        for (parent, here, there), count in doors.items()
        if here < there and (parent, there, here) in doors
    )


def _door(source: tuple[str, ...], target: tuple[str, ...]) -> tuple[tuple[str, ...], str, str] | None:
    """Parent and names of the two siblings between which an import goes; None: one folder is in the other."""
    for depth, (here, there) in enumerate(zip(source, target, strict=False)):
        if here != there:
            return source[:depth], here, there
    return None
