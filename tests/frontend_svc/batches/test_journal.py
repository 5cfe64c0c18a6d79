"""Results on the disk: each line once, whatever was half written when a process died (FB3), and a full disk (FB6)."""

from __future__ import annotations

import errno
import json
import os
import resource
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frontend_svc.batches.journal import Journal, JournalEntry, make_entry

BATCH = "batch_" + "0" * 24


def entry(line: int, *, is_output: bool = True, text: str = "x") -> JournalEntry:
    response: dict[str, object] = {"status_code": 200, "request_id": "r", "body": {"text": text}}
    return make_entry(BATCH, line, f"c{line}", response=response, error=None, is_output=is_output)


def room() -> None:
    """There is always some."""


def ids(path: Path) -> list[str]:
    return [json.loads(text)["custom_id"] for text in path.read_text().splitlines()]


def test_a_line_is_written_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 3, room)
    journal.write([entry(1), entry(2, is_output=False)])
    journal.write([entry(2), entry(1), entry(3)])
    assert (journal.num_completed, journal.num_failed) == (2, 1)
    journal.close()
    assert (ids(tmp_path / "output.jsonl"), ids(tmp_path / "errors.jsonl")) == (["c1", "c3"], ["c2"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(cut=st.integers(0, 700), noise=st.sampled_from([b"", b"\0" * 64, b"}\n", b'{"id":"a_9"}\n', b"\n\n"]))
def test_what_is_not_whole_is_cut_off_and_run_again(tmp_path: Path, cut: int, noise: bytes) -> None:
    for path in tmp_path.iterdir():
        path.unlink()
    journal = Journal(tmp_path, 4, room)
    journal.write([entry(line) for line in (1, 2, 3, 4)])
    journal.close()
    output = tmp_path / "output.jsonl"
    output.write_bytes(output.read_bytes()[:cut] + noise)
    again = Journal(tmp_path, 4, room)
    kept = again.num_completed
    assert list(again.done) == [0] + [1] * kept + [0] * (4 - kept)
    again.write([entry(line, text="new") for line in (1, 2, 3, 4)])
    again.close()
    assert ids(output) == ["c1", "c2", "c3", "c4"]


def test_a_line_of_both_files_counts_once(tmp_path: Path) -> None:
    """The output file is right: a power cut may have brought back a line that had been cut off."""
    (tmp_path / "output.jsonl").write_bytes(entry(1).data)
    (tmp_path / "errors.jsonl").write_bytes(entry(1, is_output=False).data)
    journal = Journal(tmp_path, 1, room)
    assert (journal.num_completed, journal.num_failed) == (1, 0)
    journal.close()
    assert (tmp_path / "errors.jsonl").read_bytes() == b""


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 50, room)
    journal.write([entry(1)])
    size = (tmp_path / "output.jsonl").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size * 3 + size // 2, hard))
    try:
        with pytest.raises(OSError, match="large"):
            journal.write([entry(line) for line in range(2, 50)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "output.jsonl").stat().st_size == size
    journal.write([entry(line) for line in range(2, 51)])
    journal.close()
    assert len(ids(tmp_path / "output.jsonl")) == 50


def test_half_a_line_that_cannot_be_cut_off_at_once_has_nothing_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails may fail in cutting, too. Before, the next answer was written behind the half."""
    journal = Journal(tmp_path, 5, room)
    journal.write([entry(1)])
    write, num_cuts = os.write, 0

    def half(handle: int, data: memoryview) -> int:
        if len(data) <= 50:
            raise OSError(errno.EIO, "Input/output error")
        return write(handle, data[:-50])

    def failing(handle: int, size: int) -> None:
        nonlocal num_cuts
        num_cuts += 1
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "write", half)
        broken.setattr(os, "ftruncate", failing)
        for _ in range(2):
            with pytest.raises(OSError, match="Input"):
                journal.write([entry(2), entry(3)])
    assert num_cuts >= 2
    journal.write([entry(4)])
    journal.write([entry(line) for line in (2, 3, 5)])
    journal.close()
    assert ids(tmp_path / "output.jsonl") == ["c1", "c4", "c2", "c3", "c5"]


def test_without_room_nothing_is_written(tmp_path: Path) -> None:
    def no_room() -> None:
        raise OSError(errno.EDQUOT, "full")

    journal = Journal(tmp_path, 1, no_room)
    with pytest.raises(OSError, match="full"):
        journal.write([entry(1)])
    journal.close()
    assert (tmp_path / "output.jsonl").read_bytes() == b""
