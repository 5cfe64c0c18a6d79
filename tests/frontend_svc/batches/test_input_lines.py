"""Lines of a batch's input: what is wrong is told with its line, (FB4) and memory is bounded (FB8)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from frontend_svc.batches import pace
from frontend_svc.batches.input_lines import MAX_ERRORS, InputReport, LineReader, validate

URL = "/v1/completions"


def line(custom_id: Any = "a", **fields: Any) -> bytes:
    given = {"custom_id": custom_id, "method": "POST", "url": URL, "body": {"prompt": "x"}}
    return json.dumps(given | fields).encode()


def check(path: Path, *lines: bytes, max_lines: int = 100) -> InputReport:
    path.write_bytes(b"\n".join(lines))
    return validate(path, URL, max_lines=max_lines, max_line_bytes=1000)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (line().replace(b'"x"', b"[" * 300 + b"]" * 300), "invalid_parameter"),
        (b"garbage", "invalid_json_line"),
        (b"\xff\xfe\x00", "invalid_json_line"),
        (b"[" * 900, "invalid_json_line"),
        (b"[]", "invalid_json_line"),
        (line(b=1), "unknown_parameter"),
        (line(None), "missing_required_parameter"),
        (line(""), "invalid_parameter"),
        (line(7), "invalid_parameter"),
        (line("a"), "duplicate_custom_id"),
        (line("b", method="GET"), "invalid_method"),
        (line("b", url="/v1/embeddings"), "url_mismatch"),
        (line("b", url=["/v1/completions"]), "url_mismatch"),
        (line("b", body=[]), "invalid_parameter"),
        (line("b", body={"stream": True}), "invalid_parameter"),
        (line("b" * 1000), "line_too_long"),
    ],
)
def test_a_wrong_line_is_told_with_its_number(tmp_path: Path, text: bytes, code: str) -> None:
    report = check(tmp_path / "in", line("a"), b"", text, line("c"))
    assert [(error["code"], error["line"]) for error in report.errors] == [(code, 3)]
    assert (report.total, report.num_lines) == (3, 4)


def test_a_hundred_errors_are_told(tmp_path: Path) -> None:
    assert len(check(tmp_path / "in", *[b"x"] * 150, max_lines=1000).errors) == MAX_ERRORS


def test_too_many_lines_end_the_reading(tmp_path: Path) -> None:
    report = check(tmp_path / "in", *(line(str(number)) for number in range(11)), max_lines=10)
    assert [error["code"] for error in report.errors] == ["too_many_tasks"]
    assert [error["code"] for error in check(tmp_path / "in", b"\n" * 5000, max_lines=10).errors] == [
        "too_many_tasks"
    ]


def test_a_file_without_lines(tmp_path: Path) -> None:
    assert [error["code"] for error in check(tmp_path / "in", b"", b"  ").errors] == ["empty_file"]


def test_a_mark_of_byte_order_and_line_ends_of_windows(tmp_path: Path) -> None:
    report = check(tmp_path / "in", b"\xef\xbb\xbf" + line("a") + b"\r", line("b") + b"\r")
    assert (report.errors, report.total) == ([], 2)


def test_what_is_done_is_not_read_again_and_a_priority_is_the_batch_s(tmp_path: Path) -> None:
    path = tmp_path / "in"
    check(path, line("a"), b"", line("b"), line("c", body={"prompt": "y", "priority": -5}))
    reader = LineReader(path, URL, bytearray([0, 1, 0, 0, 0]), 1000)
    lines = reader.read()
    assert [(each.number, each.custom_id) for each in lines] == [(3, "b"), (4, "c")]
    assert json.loads(lines[1].body) == {"prompt": "y"}
    assert reader.read() == []
    reader.close()


def test_a_reader_takes_few_lines_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"\n".join(line(str(number)) for number in range(1000)))
    reader = LineReader(path, URL, bytearray(1001), 1000)
    counts = []
    while lines := reader.read():
        counts.append(len(lines))
    reader.close()
    assert sum(counts) == 1000
    assert max(counts) <= 64


@pytest.mark.slow
def test_a_hundred_thousand_lines_take_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 bytes of each custom_id, as Python keeps them; a megabyte of lines at a time (FB8)."""
    monkeypatch.setattr(pace, "WORK_S", 60.0)
    path = tmp_path / "in"
    with path.open("wb") as file:
        for number in range(100_000):
            file.write(line(f"name-{number}", body={"prompt": "x" * 500}) + b"\n")
    before = psutil.Process().memory_info().rss
    report = validate(path, URL, max_lines=100_000, max_line_bytes=1000)
    assert (report.total, report.errors) == (100_000, [])
    reader = LineReader(path, URL, bytearray(100_001), 1000)
    assert sum(len(lines) for lines in iter(reader.read, [])) == 100_000
    reader.close()
    assert psutil.Process().memory_info().rss - before < 48 << 20
