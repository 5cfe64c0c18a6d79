"""The results of a batch as they are written, which are also the record of what is done: a line that stands in one of
the two files is not run again. Everything here blocks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import orjson

from frontend_svc.batches.batch_store import ERRORS, OUTPUT
from frontend_svc.batches.ids import line_of, request_id
from frontend_svc.batches.pace import Pace

_FIELDS = {"id", "custom_id", "response", "error"}


@dataclass(frozen=True)
class JournalEntry:
    """The answer to a line, as its file will have it."""

    line: int
    is_output: bool
    """It stands in the output file; else in the error file."""
    data: bytes
    """One line of JSON, with its end."""


def make_entry(
    batch_id: str,
    line: int,
    custom_id: str,
    *,
    response: dict[str, object] | None,
    error: dict[str, str] | None,
    is_output: bool = False,
) -> JournalEntry:
    """An entry in OpenAI's shape."""
    fields = {
        "id": request_id(batch_id, line),
        "custom_id": custom_id,
        "response": response,
        "error": error,
    }
    return JournalEntry(line, is_output, orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE))


class Journal:
    """Both files of one batch, which one process writes."""

    def __init__(self, folder: Path, num_lines: int, check_room: Callable[[], None]) -> None:
        """Reads what is there, and cuts off what was half written when its writer died. `check_room` raises OSError
        where nothing more may be kept. Raises OSError."""
        self.done = bytearray(num_lines + 1)
        """A byte for each line by its number, 1 where it has been answered."""
        self._check_room = check_room
        self._output = _ResultFile(folder / OUTPUT, self.done)
        try:
            self._errors = _ResultFile(folder / ERRORS, self.done)
        except BaseException:
            self._output.close()
            raise

    @property
    def num_completed(self) -> int:
        """Lines of the output file."""
        return self._output.num_lines

    @property
    def num_failed(self) -> int:
        """Lines of the error file."""
        return self._errors.num_lines

    def write(self, entries: Iterable[JournalEntry]) -> None:
        """Appends what is not done. Raises OSError: what was not written whole is not there, and may come again."""
        new = [entry for entry in entries if not self.done[entry.line]]
        if not new:
            return
        self._check_room()
        for file, is_output in ((self._output, True), (self._errors, False)):
            own = [entry for entry in new if entry.is_output is is_output]
            if own:
                file.append(b"".join(entry.data for entry in own), len(own))
                for entry in own:
                    self.done[entry.line] = 1

    def sync(self) -> None:
        """All of it outlives a power cut. Raises OSError."""
        self._output.sync()
        self._errors.sync()

    def close(self) -> None:
        """Closes both files."""
        self._output.close()
        self._errors.close()


class _ResultFile:
    """A file of whole lines."""

    def __init__(self, path: Path, done: bytearray) -> None:
        self.num_lines = 0
        self._size = 0
        self._is_torn = False
        """More may be in the file than `_size`, which is to go."""
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._recover(path, done)
        except BaseException:
            os.close(self._handle)
            raise

    def _recover(self, path: Path, done: bytearray) -> None:
        """The first line that is not whole is where the disk was left: what follows is run again."""
        pace = Pace()
        with path.open("rb") as file:
            for text in file:
                pace.rest()
                line = _line_in(text)
                if not 0 < line < len(done) or done[line]:
                    break
                done[line] = 1
                self.num_lines += 1
                self._size += len(text)
        self._cut()

    def append(self, data: bytes, num_lines: int) -> None:
        if self._is_torn:
            self._cut()
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._handle, left) :]
        except OSError:
            self._is_torn = True  # also where cutting fails now: nothing is written behind half a line
            with contextlib.suppress(OSError):
                self._cut()
            raise
        self._size += len(data)
        self.num_lines += num_lines

    def _cut(self) -> None:
        os.ftruncate(self._handle, self._size)
        os.lseek(self._handle, self._size, os.SEEK_SET)
        self._is_torn = False

    def sync(self) -> None:
        os.fsync(self._handle)

    def close(self) -> None:
        os.close(self._handle)


def _line_in(text: bytes) -> int:
    """Which line of the input is answered here; 0: this is not whole."""
    if not text.endswith(b"\n"):
        return 0
    try:
        fields = orjson.loads(text)
        return line_of(fields["id"]) if fields.keys() == _FIELDS else 0
    except (ValueError, KeyError, TypeError, AttributeError):
        return 0
