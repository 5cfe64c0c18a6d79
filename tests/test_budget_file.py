"""Budgets fall with their counts, and rise only in a commit that does nothing else and gives its reason."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.structure.budgets import PATH, complaints, read_budgets, tightened, write_budgets
from tools.structure.history import wrong_raises

ROOT = Path(__file__).resolve().parent.parent
ONE = "[circles]\nsignalbox = 1\n"
TWO = "[circles]\nsignalbox = 2\n"


@pytest.fixture
def commit(tmp_path: Path) -> Callable[..., None]:
    """Commits files to a repository whose budget is 1."""

    def git(*arguments: str) -> None:
        names = "-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"
        subprocess.run(["git", *names, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def commit(message: str, **files: str) -> None:
        for name, text in files.items():
            path = tmp_path / (PATH if name == "budgets" else name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        git("add", ".")
        git("commit", "--message", message)

    git("init")
    commit("first", budgets=ONE)
    return commit


def test_a_budget_may_rise_alone_and_with_a_reason(tmp_path: Path, commit: Callable[..., None]) -> None:
    commit("budgets: one circle more\n\nIt saves 3 us of 100 in each step.", budgets=TWO)
    commit("lower", budgets=ONE, code="")
    commit("another count", budgets=ONE + "worker_svc = 3\n", code=" ")
    assert wrong_raises(tmp_path) == []


def test_a_budget_that_rises_beside_a_change_is_found(tmp_path: Path, commit: Callable[..., None]) -> None:
    commit("a feature\n\nIt needs a circle.", budgets=TWO, code="")
    commit("later", code=" ")
    (line,) = wrong_raises(tmp_path)
    assert line.endswith("raises circles.signalbox and changes other files")


def test_a_budget_that_rises_without_a_reason_is_found(tmp_path: Path, commit: Callable[..., None]) -> None:
    commit("budgets: one circle more", budgets=TWO)
    (line,) = wrong_raises(tmp_path)
    assert line.endswith("raises circles.signalbox and gives no reason in its body")


def test_a_budget_that_rises_in_the_working_tree_is_found(
    tmp_path: Path, commit: Callable[..., None]
) -> None:
    (tmp_path / PATH).write_text(TWO)
    (line,) = wrong_raises(tmp_path)
    assert line.startswith("not committed: raises circles.signalbox")


def test_no_commit_has_raised_a_budget_beside_other_changes() -> None:
    assert wrong_raises(ROOT) == []


def test_budgets_fall_with_their_counts_and_never_rise() -> None:
    assert tightened({"a.b": 1, "a.c": 3, "a.new": 5}, {"a.b": 2, "a.c": 2, "a.gone": 7}) == {
        "a.b": 1,
        "a.c": 2,
        "a.new": 5,
    }


def test_a_count_that_is_not_its_budget_is_found() -> None:
    found = complaints(
        {"above": 2, "below": 1, "new": 0, "same": 4}, {"above": 1, "below": 2, "same": 4, "gone": 0}
    )
    assert [line.split()[0] for line in found] == ["above", "below", "new", "gone"]


def test_the_file_is_as_it_is_written() -> None:
    text = (ROOT / PATH).read_text()
    assert write_budgets(read_budgets(text)) == text
