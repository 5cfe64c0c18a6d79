"""Full collections of garbage, and what they do not walk over again."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from signalbox.runtime import collector
from signalbox.runtime.collector import SWEEP_EVERY_S, Collector


class Node:
    """May refer to itself."""

    def __init__(self) -> None:
        self.other: Node | None = None


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """Any full collection counts as long."""
    gc.collect()
    monkeypatch.setattr(collector, "LONG_S", 0.0)
    found = Collector()
    found.start()
    try:
        yield found
    finally:
        found.stop()


def test_what_a_long_collection_has_left_is_not_walked_over_again(started: Collector) -> None:
    kept = [Node() for _ in range(5000)]
    gc.collect(1)
    assert not started.has_set_aside, "it was no full one"
    gc.collect()
    assert started.has_set_aside and gc.get_freeze_count() >= len(kept)
    walked = {id(each) for each in gc.get_objects()}
    assert not any(id(each) in walked for each in kept)


def test_a_short_one_sets_nothing_aside(started: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "LONG_S", 100.0)
    before = gc.get_freeze_count()
    gc.collect()
    assert not started.has_set_aside and gc.get_freeze_count() <= before


def test_what_refers_to_itself_is_freed_by_the_next_sweep(started: Collector) -> None:
    node, plain = Node(), Node()
    node.other = node
    is_there, is_plain_there = weakref.ref(node), weakref.ref(plain)
    gc.collect()
    del node, plain
    gc.collect()
    assert is_there() is not None and is_plain_there() is None, "references are counted as ever"
    started.sweep(1.0)
    assert is_there() is not None, "the last sweep is less than a minute ago"
    started.sweep(SWEEP_EVERY_S)
    assert is_there() is None and not started.has_set_aside


def test_it_stops() -> None:
    before = list(gc.callbacks)
    found = Collector()
    found.start()
    found.stop()
    found.stop()
    assert gc.callbacks == before
