"""The lines of a batch's input: validated before any runs, then read a few at a time. Everything here blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from frontend_svc.batches.pace import Pace

MAX_ERRORS = 100
"""So many wrong lines are told."""
MAX_CUSTOM_ID_CHARS = 512
MAX_READ_BYTES = 1 << 20
MAX_READ_LINES = 64


@dataclass(frozen=True)
class InputLine:
    """One request of a batch."""

    number: int
    """Counted from 1, empty lines included."""
    custom_id: str
    body: bytes


class LineError(Exception):
    """A line is wrong: OpenAI's code, a sentence, and which field."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.param = code, message, param


@dataclass
class InputReport:
    """What validation has found."""

    num_lines: int = 0
    """Lines, empty ones included."""
    total: int = 0
    """Lines that are to run."""
    errors: list[dict[str, Any]] = field(default_factory=list)

    def add(self, error: LineError, line: int | None) -> None:
        """Remembers the first hundred."""
        if len(self.errors) < MAX_ERRORS:
            told = {"code": error.code, "message": error.message, "param": error.param, "line": line}
            self.errors.append(told)


def validate(path: Path, endpoint: str, *, max_lines: int, max_line_bytes: int) -> InputReport:
    """Looks at every line once. Keeps 16 bytes of each `custom_id`. Raises OSError."""
    report, seen, pace = InputReport(), set[bytes](), Pace()
    with path.open("rb") as file:
        for number, text in _numbered(file, max_line_bytes):
            pace.rest()
            report.num_lines = number
            is_empty = text is not None and not text.strip()
            report.total += not is_empty
            if report.total > max_lines or number > 2 * max_lines + MAX_ERRORS:
                message = f"the file has more than {max_lines} requests, or as many empty lines"
                report.add(LineError("too_many_tasks", message), None)
                return report
            if is_empty:
                continue
            try:
                line = parse_line(number, text, endpoint, max_line_bytes)
                digest = hashlib.sha256(line.custom_id.encode()).digest()[:16]
                if digest in seen:
                    raise LineError(
                        "duplicate_custom_id", "the custom_id is that of a line before", "custom_id"
                    )
                seen.add(digest)
            except LineError as error:
                report.add(error, number)
    if not report.total:
        report.add(LineError("empty_file", "the file has no requests"), None)
    return report


def parse_line(number: int, text: bytes | None, endpoint: str, max_line_bytes: int) -> InputLine:
    """`text` None: it is too long. Raises LineError."""
    if text is None:
        raise LineError("line_too_long", f"the line is longer than {max_line_bytes} bytes")
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise LineError("invalid_json_line", f"the line is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise LineError("invalid_json_line", "the line is not a JSON object")
    _check_fields(fields, endpoint)
    body = fields["body"]
    body.pop("priority", None)  # a batch has its own class
    try:
        return InputLine(number, fields["custom_id"], orjson.dumps(body))
    except orjson.JSONEncodeError:
        raise LineError("invalid_parameter", "body is nested too deeply", "body") from None


def _check_fields(fields: dict[str, Any], endpoint: str) -> None:
    for name in ("custom_id", "method", "url", "body"):
        if fields.get(name) is None:
            raise LineError("missing_required_parameter", f"{name} is missing", name)
    if unknown := fields.keys() - {"custom_id", "method", "url", "body"}:
        name = min(unknown)
        raise LineError("unknown_parameter", f"{name[:64]} is not a field of a line", name[:64])
    custom_id = fields["custom_id"]
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= MAX_CUSTOM_ID_CHARS:
        message = f"custom_id must be a string of 1 to {MAX_CUSTOM_ID_CHARS} characters"
        raise LineError("invalid_parameter", message, "custom_id")
    if fields["method"] != "POST":
        raise LineError("invalid_method", "method must be POST", "method")
    if fields["url"] != endpoint:
        raise LineError("url_mismatch", f"url must be the batch's endpoint, {endpoint}", "url")
    if not isinstance(fields["body"], dict):
        raise LineError("invalid_parameter", "body must be an object", "body")
    if fields["body"].get("stream"):
        raise LineError("invalid_parameter", "a line of a batch cannot be streamed", "body.stream")


class LineReader:
    """Reads an input that was validated, but for the lines that are done."""

    def __init__(self, path: Path, endpoint: str, done: bytearray, max_line_bytes: int) -> None:
        """`done` has a byte for each line, not 0 where it has been answered."""
        self._file = path.open("rb")
        self._lines = _numbered(self._file, max_line_bytes)
        self._endpoint, self._done, self._max_line_bytes = endpoint, done, max_line_bytes

    def read(self) -> list[InputLine]:
        """The next lines, about a megabyte at most; none: that was the last one."""
        lines: list[InputLine] = []
        size, pace = 0, Pace()
        for number, text in self._lines:
            pace.rest()
            if number >= len(self._done) or self._done[number] or (text is not None and not text.strip()):
                continue
            lines.append(parse_line(number, text, self._endpoint, self._max_line_bytes))
            size += len(lines[-1].body)
            if size >= MAX_READ_BYTES or len(lines) >= MAX_READ_LINES:
                break
        return lines

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _numbered(file: BinaryIO, max_line_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    """(number from 1, line); None in place of a line that is too long. A mark of byte order at the very beginning is
    no part of a line."""
    number = 0
    while text := file.readline(max_line_bytes + 1):
        number += 1
        if len(text) <= max_line_bytes or text.endswith(b"\n"):
            yield number, text.removeprefix(b"\xef\xbb\xbf") if number == 1 else text
            continue
        while text and not text.endswith(b"\n"):
            text = file.readline(max_line_bytes + 1)
        yield number, None
