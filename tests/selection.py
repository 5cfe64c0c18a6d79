"""`--reach`: runs the tests that a change can reach, and one ring of each kind (tools/reach, CONTRIBUTING.md)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tools.reach.changes import NoBaseError, head_of, read_change
from tools.reach.choice import Choice, choose
from tools.reach.tree import read_checkout

COMPLETE = "reach/complete"
"""What the cache of pytest has of the last run of all tests: its commit, and how many tests each file had."""
CHOSEN = "reach"
"""Name of the plugin that chooses, and of what processes of xdist are told."""


def add_options(parser: pytest.Parser) -> None:
    """Adds the option."""
    parser.addoption(
        "--reach",
        metavar="COMMIT",
        help="only what has changed since COMMIT reaches; empty: see CONTRIBUTING.md",
    )


def register(config: pytest.Config) -> None:
    """Registers what this process has to do."""
    chosen = getattr(config, "workerinput", {}).get(CHOSEN)
    if hasattr(config, "workerinput"):
        if chosen is not None:
            config.pluginmanager.register(Chooser(config.rootpath, *chosen), CHOSEN)
        return
    config.pluginmanager.register(Record(config))
    if config.option.reach is None:
        return
    try:
        if why := why_all(config):
            raise NoBaseError(why)
        change = read_change(config.rootpath, config.option.reach)
        choice = choose(read_checkout(config.rootpath), change.paths, last_failed(config))
        if choice.everything:
            raise NoBaseError(choice.everything)
    except NoBaseError as error:
        config.pluginmanager.register(Report(config, [f"all tests run: {error}"]))
        return
    since = f"{len(change.paths)} files changed since {change.base}"
    counts = complete_run(config).get("tests", {})
    config.pluginmanager.register(Report(config, summary(choice, since, counts)))
    config.pluginmanager.register(Chooser(config.rootpath, sorted(choice.selected), choice.smoke), CHOSEN)


def why_all(config: pytest.Config) -> str:
    """Why nothing is selected here; empty if it may be."""
    if os.environ.get("CI"):
        return "CI is set"
    if names_tests(config):
        return "they are named"
    if not complete_run(config):
        return "no complete run is recorded in this checkout"
    return ""


def names_tests(config: pytest.Config) -> bool:
    """Whether the command line says which tests it wants."""
    return bool(
        config.args_source is pytest.Config.ArgsSource.ARGS
        or config.option.keyword
        or getattr(config.option, "lf", False)
    )


def is_narrowed(config: pytest.Config) -> bool:
    """Whether options leave out more than `make test` does."""
    option = config.option
    return bool(
        option.ignore or option.ignore_glob or option.deselect or option.markexpr not in ("", "not slow")
    )


def cache_of(config: pytest.Config) -> pytest.Cache | None:
    """The cache of pytest; None where it is switched off."""
    return getattr(config, "cache", None)


def complete_run(config: pytest.Config) -> dict[str, Any]:
    """The record of the last run of all tests; empty: none."""
    cache = cache_of(config)
    return dict((cache and cache.get(COMPLETE, None)) or {})


def last_failed(config: pytest.Config) -> set[str]:
    """Files with tests that have failed and not passed since."""
    cache = cache_of(config)
    names = cache.get("cache/lastfailed", {}) if cache else {}
    return {str(name).partition("::")[0] for name in names}


def summary(choice: Choice, since: str, counts: dict[str, int]) -> list[str]:
    """What runs, what does not and why; `counts` are the tests of each file, as far as they are known."""
    num_left_out = sum(counts.get(file, 0) for file in choice.left_out)
    folders = Counter[str]()
    for file in choice.left_out:
        folders["/".join(PurePosixPath(file).parts[:3][: len(PurePosixPath(file).parts) - 1])] += 1
    return [
        f"{len(choice.selected)} of {len(choice.selected | choice.left_out)} files of tests run: those that "
        f"{since} reach, or that failed last; and {len(choice.smoke)} tests, of a ring of each kind",
        f"left out, as the change does not reach them: {num_left_out} tests in {len(choice.left_out)} files "
        "(make test ALL=1 runs them)",
        "  " + ", ".join(f"{folder} {num}" for folder, num in sorted(folders.items())),
    ]


class Chooser:
    """Leaves out files before they are imported, and all but the smoke tests of the files that these are in."""

    def __init__(self, root: Path, files: Iterable[str], smoke: Iterable[str]) -> None:
        self._root = root
        self._files, self._smoke = list(files), list(smoke)
        self._wanted = {*self._files, *(name.partition("::")[0] for name in self._smoke)}
        self._folders = {str(folder) for file in self._wanted for folder in PurePosixPath(file).parents}

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tells a process of xdist."""
        node.workerinput[CHOSEN] = [self._files, self._smoke]

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        if not collection_path.is_relative_to(self._root):
            return None
        path = collection_path.relative_to(self._root).as_posix()
        if collection_path.is_dir():
            return None if path in self._folders else True
        return True if collection_path.name.startswith("test_") and path not in self._wanted else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left_out = [item for item in items if not self._is_chosen(item)]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if self._is_chosen(item)]

    def _is_chosen(self, item: pytest.Item) -> bool:
        name = item.nodeid.partition("@")[0]
        is_smoke = any(name == smoke or name.startswith(f"{smoke}[") for smoke in self._smoke)
        return is_smoke or name.partition("::")[0] in self._files


class Report:
    """Says at the start and at the end what runs and what does not."""

    def __init__(self, config: pytest.Config, lines: list[str]) -> None:
        self._config, self._lines = config, lines

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(self._lines[0])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("selection")
        for line in self._lines:
            terminalreporter.write_line(line)


class Record:
    """Remembers a run of all tests: without one nothing is selected, so that a fresh clone runs all."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._counts = Counter[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "setup":
            self._counts[report.nodeid.partition("::")[0]] += 1

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Failures do not matter: their files run until they pass."""
        config, cache = self._config, cache_of(self._config)
        is_cut = bool(
            session.shouldstop or session.shouldfail or config.option.maxfail or config.option.collectonly
        )
        is_part = config.pluginmanager.has_plugin(CHOSEN) or names_tests(config) or is_narrowed(config)
        has_run = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if cache and has_run and not is_cut and not is_part:
            cache.set(COMPLETE, {"commit": head_of(config.rootpath), "tests": self._counts})
