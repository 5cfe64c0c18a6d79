"""How the tests are spread over processes."""

from __future__ import annotations

import gc
from collections.abc import Generator
from pathlib import Path

import pytest

SPREAD = {"test_random.py", "test_ring.py", "test_mutations.py"}
"""Files of long independent tests; the tests of any other file stay together, as they share what is dear to set up."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups by file for `--dist loadgroup`; all but the first parameters of a test that is `sampled` are slow."""
    seen = set[str]()
    for item in items:
        name = item.nodeid.partition("[")[0]
        if name in seen and item.get_closest_marker("sampled"):
            item.add_marker(pytest.mark.slow)
        seen.add(name)
        if item.path.name not in SPREAD:
            item.add_marker(pytest.mark.xdist_group(str(Path(item.path).relative_to(item.config.rootpath))))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Without the garbage collector: what is imported here lives as long as the process, and is a million objects that
    each of its rounds would walk over."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
