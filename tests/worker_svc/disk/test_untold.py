"""What a call to the directory has changed before it failed is told (docs/design.md, DT3)."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from signalbox.protocol.parts.disk import DiskOrders, NamedBlock
from tests.worker_svc.disk.running import NAMES as CONTENTS
from tests.worker_svc.disk.running import Running
from tests.worker_svc.disk.test_directory import NAMES, SIZES, opened, payloads
from worker_svc.disk import segment
from worker_svc.disk.directory import Changes, SegmentDirectory


def _fail(number: int) -> Any:
    raise OSError(number, "made for a test")


def _failing_at(call: int, works: Any, number: int) -> Any:
    """The same function, but one of its calls fails; by its number, from 1."""
    calls = list[int]()

    def work(*args: Any) -> Any:
        calls.append(1)
        return _fail(number) if len(calls) == call else works(*args)

    return work


def test_what_a_look_found_before_it_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES[:2]:
        opened(tmp_path).write(0, payloads([name]))
    mine, changes = SegmentDirectory(tmp_path, b"f" * 16, SIZES, 1 << 20), Changes()
    monkeypatch.setattr(segment, "open_file", _failing_at(2, segment.open_file, errno.EMFILE))
    with pytest.raises(OSError, match="made"):
        mine.look(changes)
    [first] = changes.added[0]
    assert (0, first) in mine
    assert sorted([first, *mine.look().added[0]]) == NAMES[:2]


def test_what_a_read_found_gone_before_it_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, changes = opened(tmp_path), Changes()
    for name in NAMES[:2]:
        mine.write(0, payloads([name]))
    opens = segment.open_file

    def open_file(path: Path) -> int:
        return opens(path) if NAMES[0] in mine._segments[path.name].index.records else _fail(errno.EMFILE)

    monkeypatch.setattr(segment, "open_file", open_file)
    mine._places[0, NAMES[0]].path.unlink()
    with pytest.raises(OSError, match="made"):
        mine.read(0, NAMES[:2], np.zeros((2, SIZES[0]), np.uint8), changes)
    assert changes.removed == {0: NAMES[:1]}


def test_what_was_deleted_for_a_write_that_failed_is_told_to_the_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DT8: room was made."""
    running = Running(tmp_path, max_bytes=400)
    running.store(1, [1], CONTENTS[:1])
    [path] = tmp_path.glob("*/*.kv")
    running.tier._directory.max_bytes = path.stat().st_size
    monkeypatch.setattr(segment, "write", lambda *_: _fail(errno.ENOSPC))
    running.tier.begin(DiskOrders(2, stores=[NamedBlock(0, 2, CONTENTS[1])]))
    gone = b""
    while CONTENTS[1] not in gone:
        gone = b"".join([gone, *(group.removed for group in running.next("disk_news").groups)])
    assert gone == CONTENTS[0] + CONTENTS[1]
    running.tier.close(20.0)


def test_what_a_load_found_gone_before_it_failed_is_told_to_the_scheduler(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        running.store(number + 1, [number + 1], CONTENTS[number : number + 1])
    directory, opens = running.tier._directory, segment.open_file
    gone = directory._places[0, CONTENTS[0]].path

    def open_file(path: Path) -> int:
        return opens(path) if path == gone else _fail(errno.EMFILE)

    monkeypatch.setattr(segment, "open_file", open_file)
    gone.unlink()
    reads = [NamedBlock(0, 8 + number, CONTENTS[number]) for number in range(2)]
    running.tier.begin(DiskOrders(3, reads, int(20e6)))
    while not any(group.removed == CONTENTS[0] for group in running.next("disk_news").groups):
        pass


def test_a_measurement_is_no_use(running: Running) -> None:
    """DT8: what nobody loads is deleted first, however often it was measured."""
    running.store(1, [1], CONTENTS[:1])
    place = running.tier._directory._places[0, CONTENTS[0]]
    os.utime(place.path, (1, 1))
    place.touched = 0.0
    running.tier._measure(1 << 20)
    assert place.path.stat().st_mtime == 1
    assert running.load(2, [2], CONTENTS[:1]) == []
    assert place.path.stat().st_mtime > 1
