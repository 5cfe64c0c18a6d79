"""Entries of the disk tier's directory that cannot be used (docs/design.md, DT11)."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worker_svc.disk.running import NAMES as CONTENTS
from tests.worker_svc.disk.running import WAIT_S, Running
from tests.worker_svc.disk.test_directory import NAMES, SIZES, content_of, files, opened, payloads, read
from worker_svc.disk import directory as directories
from worker_svc.disk import segment
from worker_svc.disk.directory import Changes, SegmentDirectory
from worker_svc.disk.left_out import FIRST_S, MOST_S, LeftOut
from worker_svc.disk.segment import Payload

FIRST = "0-0.kv"
"""Sorts before all segments of group 0."""


class Clock:
    """The monotonic clock of a directory, put forward by hand."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        patch.setattr(directories.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def _directory(path: Path) -> None:
    (path / "inside").mkdir(parents=True)


def _socket(path: Path) -> None:
    """By a short name: the path of a socket is short."""
    here = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


def _link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


ENTRIES: dict[str, Callable[[Path], object]] = {
    "directory": _directory,
    "pipe": os.mkfifo,
    "socket": _socket,
    "link to itself": _link_to_itself,
}


@pytest.mark.parametrize("kind", ENTRIES)
def test_an_entry_that_is_no_file_costs_itself(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named once, what sorts after it is found, and it is nobody's to delete."""
    opened(tmp_path).write(0, payloads(NAMES[:2]))
    odd = files(tmp_path)[0].with_name(FIRST)
    ENTRIES[kind](odd)
    mine = opened(tmp_path)
    assert read(mine, NAMES[:2]) == list(map(content_of, NAMES[:2]))
    mine.look()
    assert os.path.lexists(odd) and mine.num_left_out == 1
    assert len([record for record in caplog.records if FIRST in record.getMessage()]) == 1


@pytest.mark.parametrize("kind", ENTRIES)
def test_room_is_made_beside_an_entry_that_is_no_file(tmp_path: Path, kind: str) -> None:
    """DT8, too: the bound is held."""
    most = 3 * (SIZES[0] + 120)
    mine = opened(tmp_path, max_bytes=most)
    mine.write(0, payloads(NAMES[:1]))
    odd = mine.path / FIRST
    ENTRIES[kind](odd)
    os.utime(odd, (1, 1), follow_symlinks=False)
    for name in NAMES[1:8]:
        mine.write(0, [Payload(name, content_of(name))])
    assert read(mine, NAMES[7:8]) == [content_of(NAMES[7])]
    assert sum(path.stat().st_size for path in files(tmp_path) if path.name != FIRST) <= most


def test_a_file_that_may_not_be_opened_is_left_out_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """LO2: after a minute; the process may be root's, so the error is made."""
    opened(tmp_path).write(0, payloads(NAMES[:1]))
    opened(tmp_path).write(0, payloads(NAMES[1:2]))
    path, opens, asked = files(tmp_path)[0], segment.open_file, list[Path]()
    index = segment.read_index(path, b"f" * 16)

    def refuse(other: Path) -> int:
        asked.append(other)
        if other == path:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opens(other)

    monkeypatch.setattr(segment, "open_file", refuse)
    mine = opened(tmp_path)
    [hidden] = index.records
    assert read(mine, [hidden]) == [None] and (0, hidden) not in mine
    assert len(mine._segments) == 1
    mine.look()
    assert asked.count(path) == 1, "it is tried in each look"
    clock.now += FIRST_S
    mine.look()
    assert asked.count(path) == 2
    monkeypatch.setattr(segment, "open_file", opens)
    clock.now += 2 * FIRST_S
    assert mine.look().added == {0: [hidden]} and mine.num_left_out == 0
    assert read(mine, [hidden]) == [content_of(hidden)]


def test_a_bad_sector_costs_its_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """What others have is read in the same order; what the segment held is not there from then on."""
    mine = opened(tmp_path)
    for name in NAMES[:2]:
        mine.write(0, payloads([name]))
    reads = segment.read_record

    def fail(file: int, name: bytes, *others: Any) -> bool:
        if name == NAMES[0]:
            raise OSError(errno.EIO, "Input/output error")
        return reads(file, name, *others)

    monkeypatch.setattr(segment, "read_record", fail)
    assert read(mine, NAMES[:2]) == [None, content_of(NAMES[1])]
    assert (0, NAMES[0]) not in mine and (0, NAMES[1]) in mine
    assert not mine.look(), "it is found again at once"


def test_a_disk_that_reads_nothing_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DT5: three segments in a row, whatever their names, open the breaker."""
    running = Running(tmp_path)
    for number, name in enumerate(CONTENTS[:4]):
        running.store(number + 1, [number + 1], [name])
    monkeypatch.setattr(segment, "read_record", _fail_with(errno.EIO))
    assert running.load(10, [9, 10], CONTENTS[:2]) == [0, 1] and not running.tier.is_off
    assert running.load(11, [9], CONTENTS[2:3]) == [0] and running.tier.is_off
    running.tier.close(WAIT_S)


def test_a_process_without_descriptors_blames_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the breaker's, and what is there is found when there is room."""
    opened(tmp_path).write(0, payloads(NAMES[:1]))
    opens = segment.open_file
    mine = SegmentDirectory(tmp_path, b"f" * 16, SIZES, 1 << 20)
    monkeypatch.setattr(segment, "open_file", _fail_with(errno.EMFILE))
    with pytest.raises(OSError, match="made"):
        mine.look()
    monkeypatch.setattr(segment, "open_file", opens)
    assert mine.look().added == {0: NAMES[:1]}


def test_what_is_wrong_and_cannot_be_deleted_is_not_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """DT6: it is not read here any more, the rest is deleted, and the deletion is tried again."""
    mine = opened(tmp_path)
    for _ in range(3):
        opened(tmp_path).write(0, payloads(NAMES[:2]))
    mine.look()
    stuck, unlink = files(tmp_path)[0], Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path == stuck:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    assert mine.drop(NAMES[:1]).removed == {0: NAMES[:2]}
    assert files(tmp_path) == [stuck]
    assert not mine.look() and read(mine, NAMES[:1]) == [None]
    monkeypatch.setattr(Path, "unlink", unlink)
    clock.now += FIRST_S
    mine.look()
    assert not files(tmp_path) and mine.num_left_out == 0


@pytest.mark.parametrize("how", ["drop", "clear"])
def test_what_goes_while_it_is_left_out_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock, how: str
) -> None:
    """DT6, C7: what could not be read is deleted at once, for all who share it."""
    mine = opened(tmp_path)
    mine.write(0, payloads(NAMES[:2]))
    with monkeypatch.context() as patch:
        patch.setattr(segment, "read_record", _fail_with(errno.EIO))
        assert read(mine, NAMES[1:2]) == [None] and mine.num_left_out == 1
    mine.drop(NAMES[:1]) if how == "drop" else mine.clear()
    assert not files(tmp_path) and mine.num_left_out == 0
    clock.now += FIRST_S
    assert not mine.look() and (0, NAMES[0]) not in mine


@pytest.mark.parametrize("how", ["drop", "clear"])
def test_what_goes_before_it_could_be_opened_is_not_found_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock, how: str
) -> None:
    """DT6, C7: nor is what another process writes before it has heard of it. What is no file stays."""
    opened(tmp_path).write(0, payloads(NAMES[:2]))
    mine = SegmentDirectory(tmp_path, b"f" * 16, SIZES, 1 << 20)
    odd = mine.path / FIRST
    os.mkfifo(odd)
    with monkeypatch.context() as patch:
        patch.setattr(segment, "open_file", _fail_with(errno.EACCES))
        mine.look()
    opened(tmp_path).write(0, payloads(NAMES[:1]))
    mine.drop(NAMES[:1]) if how == "drop" else mine.clear()
    clock.now += FIRST_S
    assert not mine.look() and files(tmp_path) == [odd] and mine.num_left_out == 1
    mine.write(0, payloads(NAMES[2:3]))
    assert not mine.look() and read(mine, NAMES[2:3]) == [content_of(NAMES[2])]


def test_after_a_reset_nothing_is_found_before_all_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C7: the directory could not be listed when the reset came."""
    mine = opened(tmp_path)
    mine.write(0, payloads(NAMES[:1]))
    opened(tmp_path).write(0, payloads(NAMES[1:2]))
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", _fail_with(errno.EMFILE))
        changes = Changes()
        with pytest.raises(OSError, match="made"):
            mine.clear(changes)
    assert changes.removed == {0: NAMES[:1]} and len(files(tmp_path)) == 1
    mine.write(0, payloads(NAMES[2:3]))
    assert not mine.look() and len(files(tmp_path)) == 1
    assert read(mine, NAMES[:3]) == [None, None, content_of(NAMES[2])]


def test_wrong_contents_that_are_remembered_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DT6: the latest are."""
    monkeypatch.setattr(directories, "MOST_WRONG", 2)
    mine = opened(tmp_path)
    for name in (NAMES[0], NAMES[1], NAMES[0], NAMES[2]):
        mine.drop([name])
    for name in NAMES[:3]:
        opened(tmp_path).write(0, payloads([name]))
    assert mine.look().added == {0: NAMES[1:2]} and len(files(tmp_path)) == 1


def test_a_payload_that_cannot_be_read_is_tried_more_and_more_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """DT11, LO2: though its index and its other payload can be read; it is in the log once, and again when it is
    whole. One segment is not three in a row."""
    caplog.set_level(logging.INFO)
    mine = opened(tmp_path)
    mine.write(0, payloads(NAMES[:2]))
    reads, tries, troubles = segment.read_record, list[float](), set[str]()

    def fail(file: int, name: bytes, *others: Any) -> bool:
        if name == NAMES[1]:
            tries.append(clock.now)
            raise OSError(errno.EIO, "Input/output error")
        return reads(file, name, *others)

    def use() -> None:
        """For three hours."""
        for _ in range(3 * 360):
            mine.look()
            for names in (NAMES[:1], NAMES[:2]):
                troubles.add(mine.read(0, names, np.zeros((len(names), SIZES[0]), np.uint8)).trouble)
            clock.now += 10

    with monkeypatch.context() as patch:
        patch.setattr(segment, "read_record", fail)
        use()
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    assert pauses == [FIRST_S * 2**number for number in range(6)] + [MOST_S]
    assert troubles == {""} and mine.num_left_out == 1
    assert [record.getMessage().count("cannot be used") for record in caplog.records] == [1]
    use()
    assert mine.num_left_out == 0 and read(mine, NAMES[1:2]) == [content_of(NAMES[1])]
    assert ["can be used again" in record.getMessage() for record in caplog.records] == [False, True]


def test_segments_that_fail_beside_one_that_is_read_are_no_failing_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DT11: in a row, that is."""
    mine = opened(tmp_path)
    for name in NAMES[:5]:
        mine.write(0, payloads([name]))
    reads, bad = segment.read_record, set(NAMES[:5]) - {NAMES[2]}

    def fail(file: int, name: bytes, *others: Any) -> bool:
        if name in bad:
            raise OSError(errno.EIO, "Input/output error")
        return reads(file, name, *others)

    monkeypatch.setattr(segment, "read_record", fail)
    results = [mine.read(0, [name], np.zeros((1, SIZES[0]), np.uint8)) for name in NAMES[:5]]
    assert [bool(result.is_read[0]) for result in results] == [False, False, True, False, False]
    assert not any(result.trouble for result in results)


def test_nothing_is_written_beyond_a_bound_that_cannot_be_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DT8: files that cannot be deleted keep their bytes."""
    mine = opened(tmp_path, max_bytes=2 * (SIZES[0] + 120))
    for name in NAMES[:2]:
        mine.write(0, payloads([name]))

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OSError, match="cannot be deleted to make room"):
        mine.write(0, payloads(NAMES[2:3]))
    assert read(mine, NAMES[:2]) == list(map(content_of, NAMES[:2]))


def test_an_entry_is_tried_more_and_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    """LO2."""
    caplog.set_level(logging.INFO)
    left_out, now, pauses = LeftOut(), 0.0, list[float]()
    assert left_out.add("x", now)
    for _ in range(9):
        began = now
        while left_out.is_out("x", now):
            now += FIRST_S / 2
        pauses.append(now - began)
        assert not left_out.add("x", now), "it is named each time"
    assert pauses[:3] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S] and pauses[-1] == MOST_S
    assert left_out.forget("x") and left_out.add("x", now)
    assert not left_out.is_out("x", now + FIRST_S)


def test_an_entry_that_is_in_use_again_is_not_counted() -> None:
    """DT11: how often it has failed is kept all the same."""
    left_out = LeftOut()
    assert left_out.add_unread("x", 0.0, NAMES[0], NAMES[:2]) and len(left_out) == 1
    assert not left_out.take("x") and len(left_out) == 0
    assert not left_out.add_unread("x", FIRST_S, NAMES[1], NAMES[:2]) and len(left_out) == 1
    assert left_out.is_out("x", 3 * FIRST_S - 1) and not left_out.take("x")
    assert not left_out.has_read("x", NAMES[:1]) and left_out.has_read("x", NAMES[1:2])


def _fail_with(number: int) -> Any:
    def fail(*_: Any) -> Any:
        raise OSError(number, "made for a test")

    return fail
