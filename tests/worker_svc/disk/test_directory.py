"""Segments and the directory that processes share."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from worker_svc.disk import directory as directories
from worker_svc.disk import segment
from worker_svc.disk.directory import SegmentDirectory
from worker_svc.disk.segment import Payload, SegmentError

FINGERPRINT, OTHER = b"f" * 16, b"g" * 16
SIZES = [96, 32]
NAMES = [bytes([number]) * 16 for number in range(1, 40)]


def content_of(name: bytes, size: int = SIZES[0]) -> bytes:
    return (name * size)[1 : size + 1]


def payloads(names: list[bytes], group: int = 0) -> list[Payload]:
    return [Payload(name, content_of(name, SIZES[group])) for name in names]


def opened(root: Path, fingerprint: bytes = FINGERPRINT, max_bytes: int = 1 << 20) -> SegmentDirectory:
    found = SegmentDirectory(root, fingerprint, SIZES, max_bytes)
    found.look()
    return found


def read(directory: SegmentDirectory, names: list[bytes], group: int = 0) -> list[bytes | None]:
    into = np.zeros((len(names), SIZES[group]), np.uint8)
    is_read, *_ = directory.read(group, names, into)
    return [row.tobytes() if found else None for row, found in zip(into, is_read, strict=True)]


def files(root: Path) -> list[Path]:
    return sorted(root.glob("*/*.kv"))


def test_another_process_finds_what_was_written_group_by_group(tmp_path: Path) -> None:
    """DT1, DT2."""
    opened(tmp_path).write(0, payloads(NAMES[:3]))
    opened(tmp_path).write(1, payloads(NAMES[2:4], 1))
    again = opened(tmp_path)
    assert read(again, NAMES[:4]) == [*map(content_of, NAMES[:3]), None]
    assert read(again, NAMES[2:4], 1) == [content_of(name, SIZES[1]) for name in NAMES[2:4]]


def test_a_process_notices_what_others_write_and_delete(tmp_path: Path) -> None:
    """DT2."""
    mine, other = opened(tmp_path), opened(tmp_path)
    other.write(0, payloads(NAMES[:2]))
    assert mine.look().added == {0: NAMES[:2]}
    files(tmp_path)[0].unlink()
    assert read(mine, NAMES[:1]) == [None]
    assert other.look().removed == {0: NAMES[:2]}


def test_what_another_segment_has_too_stays(tmp_path: Path) -> None:
    """DT2."""
    mine = opened(tmp_path)
    mine.write(0, payloads(NAMES[:2]))
    opened(tmp_path).write(0, payloads(NAMES[1:3]))
    mine.look()
    [first] = [path for path in files(tmp_path) if NAMES[0] in segment.read_index(path, FINGERPRINT).records]
    first.unlink()
    assert mine.look().removed == {0: NAMES[:1]}
    assert read(mine, NAMES[1:3]) == list(map(content_of, NAMES[1:3]))


def test_another_fingerprint_sees_nothing(tmp_path: Path) -> None:
    """DT1: not even a file that stands in its directory."""
    opened(tmp_path).write(0, payloads(NAMES[:2]))
    other = opened(tmp_path, OTHER)
    other.path.mkdir()
    os.link(files(tmp_path)[0], other.path / "0-stray.kv")
    assert not other.look() and read(other, NAMES[:2]) == [None, None]


@pytest.mark.parametrize("at", ["first", "last"])
def test_a_damaged_block_costs_itself_alone(tmp_path: Path, at: str) -> None:
    """DT2."""
    mine = opened(tmp_path)
    mine.write(0, payloads(NAMES[:3]))
    [path] = files(tmp_path)
    raw = bytearray(path.read_bytes())
    raw[-3 * SIZES[0] if at == "first" else -1] ^= 1
    path.write_bytes(raw)
    expected = list(map(content_of, NAMES[:3]))
    expected[0 if at == "first" else 2] = None  # type: ignore[call-overload]
    assert read(mine, NAMES[:3]) == expected
    gone = NAMES[0 if at == "first" else 2]
    assert (0, gone) not in mine


def test_a_block_under_anothers_name_is_damaged(tmp_path: Path) -> None:
    """DT2: the checksum is over the name, too."""
    mine = opened(tmp_path)
    mine.write(0, payloads(NAMES[:2]))
    [path] = files(tmp_path)
    raw = path.read_bytes()
    first, second = raw[-2 * SIZES[0] : -SIZES[0]], raw[-SIZES[0] :]
    path.write_bytes(raw[: -2 * SIZES[0]] + second + first)
    assert read(mine, NAMES[:2]) == [None, None]


@pytest.mark.parametrize("cut", [0, 10, segment.HEADER_BYTES + 5, -1])
def test_a_file_that_was_cut_short_is_left_out_and_deleted(tmp_path: Path, cut: int) -> None:
    """DT2."""
    opened(tmp_path).write(0, payloads(NAMES[:3]))
    [path] = files(tmp_path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(SegmentError):
        segment.read_index(path, FINGERPRINT)
    assert read(opened(tmp_path), NAMES[:3]) == [None] * 3
    assert not files(tmp_path)


def test_a_header_or_index_with_a_wrong_bit_is_left_out(tmp_path: Path) -> None:
    """DT2: whichever bit it is."""
    opened(tmp_path).write(0, payloads(NAMES[:1]))
    [path] = files(tmp_path)
    raw = path.read_bytes()
    for at in range(len(raw) - SIZES[0]):
        damaged = bytearray(raw)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(SegmentError):
            segment.read_index(path, FINGERPRINT)


def test_what_was_used_least_is_deleted_for_whatever_fingerprint(tmp_path: Path) -> None:
    """DT8."""
    most = 4 * (SIZES[0] + 120)
    others = opened(tmp_path, OTHER, most)
    others.write(0, payloads(NAMES[:1]))
    mine = opened(tmp_path, max_bytes=most)
    for number, name in enumerate(NAMES[:8]):
        mine.write(0, [Payload(name, content_of(name))])
        for path in files(tmp_path):
            if path.stat().st_mtime > 1e6:
                os.utime(path, (number, number))
        assert sum(path.stat().st_size for path in files(tmp_path)) <= most
    assert others.look().removed == {0: NAMES[:1]}
    assert read(mine, NAMES[:8])[-1] == content_of(NAMES[7])
    assert read(mine, NAMES[:1]) == [None]


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DT5."""
    mine = opened(tmp_path)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(directories.segment.os, "write", full)
    with pytest.raises(OSError, match="No space"):
        mine.write(0, payloads(NAMES[:2]))
    assert not list(tmp_path.glob("*/*"))


def test_what_a_process_left_half_written_is_cleared(tmp_path: Path) -> None:
    """DT2."""
    mine = opened(tmp_path)
    mine.write(0, payloads(NAMES[:1]))
    stale, young = mine.path / "a.tmp", mine.path / "b.tmp"
    for path in (stale, young):
        path.write_bytes(b"half")
    os.utime(stale, (0, 0))
    mine.look()
    assert not stale.exists() and young.exists()


def test_what_is_wrong_goes_for_all(tmp_path: Path) -> None:
    """DT6."""
    mine, other = opened(tmp_path), opened(tmp_path)
    mine.write(0, payloads(NAMES[:2]))
    mine.write(1, payloads(NAMES[1:3], 1))
    other.look()
    mine.drop([NAMES[1]])
    assert not files(tmp_path) and other.look().removed == {0: NAMES[:2], 1: NAMES[1:3]}
