"""How the tests are spread over processes."""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest

from tests import costs, selection
from tests.pairs import ALL_COMBINATIONS, covering, numbered
from tests.zygote import plugin

SPREAD = {
    "tests/simulation/test_handoff.py",
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


@pytest.hookimpl(tryfirst=True)  # before a choice by -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test that is `sampled`, all but the first parameters are slow, and those that bring no new pair are left
    to `make soak`, as is what is marked so. Whoever names a test gets it."""
    sampled: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("sampled"):
            sampled.setdefault(f"{item.path}::{item.originalname}", []).append(item)
    left_out = {item for item in items if item.get_closest_marker("soak") and not ALL_COMBINATIONS}
    for group in sampled.values():
        for item in group[1:]:
            item.add_marker(pytest.mark.slow)
        if not ALL_COMBINATIONS and len(group) > 1:
            chosen = covering(numbered([item.callspec.params for item in group]))
            left_out |= {item for at, item in enumerate(group) if at not in chosen}
    if left_out and not config.option.keyword and not any("[" in name for name in config.args):
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


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


def pytest_addoption(parser: pytest.Parser) -> None:
    costs.add_option(parser)
    plugin.add_option(parser)
    selection.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    costs.register(config)
    config.pluginmanager.register(plugin.Zygotes(config))
    selection.register(config)
    if not hasattr(config, "workerinput"):  # the one process that reports
        config.pluginmanager.register(Failures(config))


class Failures:
    """Names each failure when it comes: a run that is cut off says what had failed until then."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            terminal.ensure_newline()
            terminal.write_line(
                f"{report.nodeid} ({report.when}): {crash.message.splitlines()[0] if crash else ''}"
            )
