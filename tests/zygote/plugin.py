"""How tests use the zygote: from configuration to the end of the session, but in those that are marked `fresh`."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator

import pytest

from tests.zygote import popen
from tests.zygote.zygote import Zygote


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fresh", action="store_true", help="start every process afresh, none as a fork of the zygote"
    )


class Zygotes:
    """Runs in each process that runs tests. The zygote is started by the first test that needs it."""

    def __init__(self, config: pytest.Config) -> None:
        self._zygote: Zygote | None = None
        if sys.platform == "linux" and not config.getoption("fresh"):
            self._zygote = Zygote(os.environ)
            popen.install(self._zygote)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if item.get_closest_marker("fresh") is None:
            return (yield)
        with popen.fresh():
            return (yield)

    def pytest_sessionfinish(self) -> None:
        if self._zygote is not None:
            self._zygote.close()
