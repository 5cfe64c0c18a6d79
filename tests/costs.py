"""Measures the processor time of each test and prints sums by folder and the dearest tests at the end of a run.

Processor time (user and system) is that of the process that runs the test, all its threads included, and of child
processes. A child is counted when it has been waited for, with its own children that it waited for; so a ring that
several tests share counts for the one after which it ends. `add` counts processes that are no children."""

from __future__ import annotations

import json
import resource
import time
from collections import defaultdict
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

import pytest

NUM_DEAREST = 60
"""Tests that are listed by name."""
LEAST_S = 0.5
"""A test below this is not listed."""
PROPERTY = "cpu_s"
"""Name under which a report carries the processor time of its phase, in seconds."""
OPTION = "--costs-to"

_added_s = 0.0


def add(cpu_s: float) -> None:
    """Counts processor time of a process that is not a child of this one, such as a fork of another process."""
    global _added_s  # noqa: PLW0603
    _added_s += cpu_s


def used_s() -> float:
    """Processor time of this process and its reaped children so far, in seconds."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime + _added_s


@dataclass
class TestCost:
    """What one test took, in seconds: setup, call and teardown together."""

    __test__ = False
    nodeid: str
    cpu_s: float = 0.0
    wall_s: float = 0.0


def add_option(parser: pytest.Parser) -> None:
    """The option of the runner that names a file for the figures."""
    parser.addoption(OPTION, metavar="FILE", help="write the processor time of each test as JSON")


def register(config: pytest.Config) -> None:
    """Measures in this process, and reports if it is the one that prints."""
    config.pluginmanager.register(Meter(config))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Costs(config))


class Meter:
    """Runs in each process that runs tests: attaches the processor time since the last report to each report."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._last_s = 0.0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        self._last_s = used_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now_s = used_s()
        report.user_properties.append((PROPERTY, now_s - self._last_s))
        self._last_s = now_s
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[PROPERTY] = _added_s


class Costs:
    """Runs in the process that reports: sums, prints and, with `--costs-to`, writes what the meters have measured."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._started_s = time.monotonic()
        self._tests: dict[str, TestCost] = {}
        self._added_s = 0.0
        self._is_grouped = config.getoption("dist", "no") == "loadgroup"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        nodeid = _without_group(report.nodeid) if self._is_grouped else report.nodeid
        cost = self._tests.setdefault(nodeid, TestCost(nodeid))
        cost.wall_s += report.duration
        cost.cpu_s += sum(float(value) for name, value in report.user_properties if name == PROPERTY)  # type: ignore[arg-type]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Takes over what a process of xdist has added; its own time is that of a child of this process."""
        self._added_s += getattr(node, "workeroutput", {}).get(PROPERTY, 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._tests:
            return
        total_s = used_s() + self._added_s  # the processes of xdist have been waited for
        wall_s = time.monotonic() - self._started_s
        costs = sorted(self._tests.values(), key=lambda cost: -cost.cpu_s)
        terminalreporter.section(f"{total_s:.0f} CPU seconds, {wall_s:.0f} s of wall time")
        for line in by_folder(costs, total_s) + dearest(costs):
            terminalreporter.write_line(line)
        if file := self._config.getoption(OPTION):
            record = {"cpu_s": total_s, "wall_s": wall_s, "tests": [asdict(cost) for cost in costs]}
            with open(file, "w", encoding="utf-8") as out:  # noqa: PTH123
                json.dump(record, out, indent=0)


def by_folder(costs: list[TestCost], total_s: float) -> list[str]:
    """A line per folder, dearest first; the rest of `total_s` is imports, collection and reporting."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
    for cost in costs:
        folder = str(PurePosixPath(cost.nodeid.partition("::")[0]).parent)
        for at, value in enumerate((cost.cpu_s, cost.wall_s, 1)):
            sums[folder][at] += value
    rest_s = total_s - sum(cost.cpu_s for cost in costs)
    rows = [
        (folder, cpu_s, f"{cpu_s:8.1f} {wall_s:8.1f} {num:6.0f}  {folder}")
        for folder, (cpu_s, wall_s, num) in sums.items()
    ]
    return [
        "   CPU s   wall s  tests  folder",
        *(line for _, _, line in sorted(rows, key=lambda row: -row[1])),
        f"{rest_s:8.1f}                  imports, collection, reports",
    ]


def dearest(costs: list[TestCost]) -> list[str]:
    """A line for each of the tests that took most processor time; `costs` is sorted."""
    listed = [cost for cost in costs[:NUM_DEAREST] if cost.cpu_s >= LEAST_S]
    lines = [f"{cost.cpu_s:8.1f} {cost.wall_s:8.1f}  {cost.nodeid}" for cost in listed]
    return [f"   CPU s   wall s  the {len(lines)} dearest tests", *lines] if lines else []


def _without_group(nodeid: str) -> str:
    """The name of a test without the group that xdist's loadgroup appends to it: `FILE::test[a@b]@GROUP`. A test in no
    group has none."""
    name, _, group = nodeid.rpartition("@")
    return name if name and "]" not in group else nodeid
