"""Files that are read again when they change: keys, tenants."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from signalbox.errors import StartupError
from signalbox.runtime.watched_file import WatchedFile


def read(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        raise StartupError(f"{path.name} is no number") from None


def watch(path: Path) -> WatchedFile[int]:
    return WatchedFile(path, read, "the number stays")


def test_a_file_is_read_when_it_changes_and_only_then(tmp_path: Path) -> None:
    path = tmp_path / "number"
    path.write_text("1")
    file = watch(path)
    assert (file.content, file.reload()) == (1, False)
    path.write_text("22")
    assert not file.reload(), "it may be half written"
    assert (file.reload(), file.content, file.reload()) == (True, 22, False)


def test_a_file_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    """What is there meanwhile may well be a good file: an empty one of tenants limits nobody."""
    path = tmp_path / "number"
    path.write_text("1")
    file = watch(path)
    for so_far in ("7", "77", "777"):
        path.write_text(so_far)
        assert (file.reload(), file.content) == (False, 1)
    assert (file.reload(), file.content) == (True, 777)


def test_whatever_a_file_holds_whoever_looks_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """LO1: an error that its reader did not think of."""

    def recurse(path: Path) -> int:
        if path.read_text() == "[":
            raise RecursionError("maximum recursion depth exceeded")
        return len(path.read_text())

    path = tmp_path / "nested"
    path.write_text("good")
    file = WatchedFile(path, recurse, "it stays")
    path.write_text("[")
    assert [file.reload(), file.reload(), file.reload()] == [False] * 3 and file.content == 4
    assert ["it stays" in record.getMessage() for record in caplog.records] == [True]
    path.write_text("better")
    assert (file.reload(), file.reload(), file.content) == (False, True, 6)


def test_a_file_that_is_wrong_or_gone_changes_nothing_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "number"
    path.write_text("1")
    file = watch(path)
    for wrong in ("one", None):
        path.unlink() if wrong is None else path.write_text(wrong)
        caplog.clear()
        assert [file.reload(), file.reload(), file.reload(), file.content] == [False, False, False, 1]
        assert caplog.messages == ["number is no number; the number stays"]
    path.write_text("333")
    assert not file.reload() and file.reload() and file.content == 333


def test_a_link_that_moves_is_a_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As of a mounted Secret; to a file of the same size."""
    caplog.set_level(logging.INFO)
    link, spare = tmp_path / "mounted", tmp_path / "spare"
    for name, text in (("old", "1"), ("new", "2")):
        (tmp_path / name).write_text(text)
    link.symlink_to(tmp_path / "old")
    file = watch(link)
    spare.symlink_to(tmp_path / "new")
    spare.rename(link)
    assert not file.reload() and file.reload() and file.content == 2
    assert "mounted has changed" in caplog.text


def test_a_file_is_read_when_somebody_says_so_and_an_error_is_theirs(tmp_path: Path) -> None:
    path = tmp_path / "number"
    with pytest.raises(StartupError, match="number is no number"):
        watch(path)
    path.write_text("1")
    file = watch(path)
    path.write_text("one")
    with pytest.raises(StartupError):
        file.load()
    assert file.content == 1 and not file.reload() and not file.reload(), "whoever asked was told"
