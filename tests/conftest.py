"""How the tests are spread over processes."""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest

SPREAD = {
    "tests/simulation/test_mutations.py",
    "tests/simulation/test_random.py",
    "tests/simulation/test_ring.py",
}
"""Files of long independent tests."""
TOGETHER = {
    "tests/contract/test_agents.py": "the demo ring",
    "tests/contract/test_openai_sdk.py": "the demo ring",
    "tests/e2e/test_ring.py": "the demo ring",
}
"""Files whose tests share what is dear to set up; those of any other file stay together by themselves."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Groups by file for `--dist loadgroup`. Not in `pytest_collection_modifyitems`: xdist reads the groups before."""
    file = item.path.relative_to(item.config.rootpath).as_posix()
    if file not in SPREAD:
        item.add_marker(pytest.mark.xdist_group(TOGETHER.get(file, file)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All but the first parameters of a test that is `sampled` are slow."""
    seen = set[str]()
    for item in items:
        name = f"{item.path}::{item.name.partition('[')[0]}"
        if name in seen and item.get_closest_marker("sampled"):
            item.add_marker(pytest.mark.slow)
        seen.add(name)


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
