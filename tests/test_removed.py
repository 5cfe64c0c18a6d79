"""Removed public names: the table of the code and that of docs/removed.md say the same (docs/removed.md)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from frontend_svc.config import FrontendSettings
from scheduler_svc.config import SchedulerSettings
from signalbox.cli.main import make_complete_parser
from signalbox.runtime.config import Settings
from signalbox.runtime.removed import REMOVED
from worker_svc.config import WorkerSettings

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "removed.md"
ROW = re.compile(r"(?m)^\| `([^`]+)` \| (\S+) \| (.+?) \| (.+) \|$")
SERVICES = (FrontendSettings, SchedulerSettings, WorkerSettings)


def test_the_document_lists_what_the_code_refuses() -> None:
    rows = [(name, version, instead) for name, version, _, instead in ROW.findall(DOCUMENT.read_text())]
    assert rows == [(name, removal.version, removal.instead) for name, removal in REMOVED.items()]


def test_every_line_of_the_table_is_a_row() -> None:
    """A row that ROW does not match would be left out of the comparison."""
    lines = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("|")][2:]
    assert [line for line in lines if not ROW.fullmatch(line)] == []


def test_removed_names_are_sorted() -> None:
    assert list(REMOVED) == sorted(REMOVED)


@pytest.mark.parametrize("settings", SERVICES)
def test_no_setting_that_exists_is_refused(settings: type[Settings]) -> None:
    prefix = settings.model_config.get("env_prefix", "")
    assert {prefix + name.upper() for name in settings.model_fields} & set(REMOVED) == set()


def test_no_command_that_exists_is_refused() -> None:
    """The complete parser names each command and flag in the help of its command."""
    (commands,) = (action.choices for action in make_complete_parser()._actions if action.dest == "command")
    assert commands is not None
    names = {command.prog for command in commands.values()}
    for command in commands.values():
        names |= {f"{command.prog} {flag}" for flag in command._option_string_actions}
    assert names & set(REMOVED) == set()
