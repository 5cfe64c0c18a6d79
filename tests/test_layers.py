"""Layers of the cores: a folder imports only folders that stand before it in its row of LAYERS, also inside functions,
for type checking and by string."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.structure.imports import Graph, import_graph
from tools.structure.sources import Module, read_modules

ROOT = Path(__file__).resolve().parent.parent
LAYERS = {
    "scheduler_svc/core": (
        "budgets",
        "state",
        "queue",
        "cluster",
        "parts",
        "step",
        "admission",
        "placement",
        "liveness",
        "moves",
        "recovery",
        "explain",
    ),
    "worker_svc/core": ("requests", "faults", "drafts", "handoff", "alone", "parts"),
    "scheduler_svc/core/state": ("blocks", "requests", "steps", "slots", "groups"),
}
"""By folder: its folders, lowest layer first."""
PARTS = "scheduler_svc/core/parts"
BETWEEN_PARTS = {("disk", "fetch"), ("pulls", "fetch"), ("pulls", "disk"), ("pulls", "handoff")}
"""A part imports no other part, but for these: what is fetched, and by whose times and eligibility."""


def between(modules: dict[str, Module], graph: Graph, parent: str) -> Iterator[tuple[str, str]]:
    """Folders of `parent` of which the first imports the second."""
    folder = tuple(parent.split("/"))
    depth = len(folder)
    for name, others in graph.items():
        for other in others:
            both = modules[name].folder, modules[other].folder
            if all(each[:depth] == folder and len(each) > depth for each in both):
                here, there = (each[depth] for each in both)
                if here != there:
                    yield here, there


def upward(modules: dict[str, Module], graph: Graph, parent: str) -> Iterator[tuple[str, str]]:
    """Imports inside `parent` that go from a folder to one that stands after it."""
    folder, layers = tuple(parent.split("/")), LAYERS[parent]
    depth = len(folder)

    def layer(name: str) -> int | None:
        inside = modules[name].folder
        return layers.index(inside[depth]) if inside[:depth] == folder and len(inside) > depth else None

    for name, others in graph.items():
        for other in others:
            here, there = layer(name), layer(other)
            if here is not None and there is not None and there > here:
                yield name, other


@pytest.mark.parametrize("parent", LAYERS)
def test_layers_import_only_those_before_them(parent: str) -> None:
    modules = read_modules(ROOT, [parent.partition("/")[0]])
    assert set(upward(modules, import_graph(modules), parent)) == set()


@pytest.mark.parametrize("parent", LAYERS)
def test_every_folder_has_a_layer(parent: str) -> None:
    assert sorted(LAYERS[parent]) == sorted(
        path.parent.name for path in (ROOT / parent).glob("*/__init__.py")
    )


def test_parts_import_no_others() -> None:
    modules = read_modules(ROOT, ["scheduler_svc"])
    assert set(between(modules, import_graph(modules), PARTS)) == BETWEEN_PARTS


def test_an_import_inside_a_function_is_seen(tmp_path: Path) -> None:
    for name, text in {"state": "def f():\n    from scheduler_svc.core.step import b\n", "step": ""}.items():
        folder = tmp_path / "scheduler_svc" / "core" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
        (folder / "b.py").write_text(text)
    modules = read_modules(tmp_path, ["scheduler_svc"])
    found = list(upward(modules, import_graph(modules), "scheduler_svc/core"))
    assert found == [("scheduler_svc.core.state.b", "scheduler_svc.core.step.b")]
