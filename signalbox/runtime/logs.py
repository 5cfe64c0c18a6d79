"""What a service logs, as lines of text or as one JSON object per line.

What a record carries beside its words (`extra`) is a field of the object, and `name=value` behind the words of a line.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from typing import Any, Literal, TextIO

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

LogFormat = Literal["text", "json"]
TIME, SERVICE, LEVEL, LOGGER, MESSAGE = "time", "service", "level", "logger", "message"
_OWN = frozenset({TIME, SERVICE, LEVEL, LOGGER, MESSAGE})
TRACEBACK = "exc_info"
# uvicorn says its words twice, the second time in colours.
_LEFT_OUT = frozenset({*RESERVED_ATTRS, "color_message"})


def set_up(service: str, level: str, form: LogFormat = "text", ids: Mapping[str, str] | None = None) -> None:
    """Has all records from `level` on written to stderr, in place of what was set up before. ids: what names this
    process in every JSON object."""
    handler = LineHandler(sys.stderr)
    handler.setFormatter(TextLines(service) if form == "text" else _json_lines(service, ids or {}))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # It writes a stack for each message that cannot be parsed; the link says so itself.
    logging.getLogger("grpc._common").setLevel(logging.CRITICAL)
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_not_of_metadata)


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes a line for each record. A disk that is full costs lines, and no service its work: what could not be
    written is counted, and said once it can."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._num_failed, self._why = 0, ""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the line of a record, and ahead of the next one how many could not be."""
        before = self._num_failed
        super().emit(record)
        if before and self._num_failed == before:
            self._num_failed = 0
            told = "up to %d lines of the log could not be written: %s"
            super().emit(
                logging.LogRecord(__name__, logging.WARNING, __file__, 0, told, (before, self._why), None)
            )

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Counts what a disk does not take. Python's own handler would make a stack of each, for the same disk."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self._num_failed, self._why = self._num_failed + 1, error.strerror or str(error)
        else:
            super().handleError(record)


def _is_not_of_metadata(record: logging.LogRecord) -> bool:
    """No for the stack that grpc writes of each value of metadata that is not UTF-8, and goes on."""
    return not record.msg.startswith("Invalid encoding")


class TextLines(logging.Formatter):
    """Time, service, level, words, and the fields that have a value."""

    def __init__(self, service: str) -> None:
        super().__init__(f"%(asctime)s {service} %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """The first line, without a traceback."""
        extra = {name: value for name, value in vars(record).items() if name not in _LEFT_OUT}
        return super().formatMessage(record) + _fields(extra)


def _json_lines(service: str, ids: Mapping[str, str]) -> logging.Formatter:
    return JsonFormatter(
        ["levelname", "name", "message"],
        rename_fields={"levelname": LEVEL, "name": LOGGER, "timestamp": TIME},
        static_fields={SERVICE: service, **{name: value for name, value in ids.items() if value}},
        reserved_attrs=_LEFT_OUT,
        timestamp=True,
    )


def as_text(line: str) -> str:
    """A line of either form as one of text; a traceback follows its line."""
    found = _read(line)
    if found is None:
        return line
    time = str(found[TIME]).replace("T", " ").partition("+")[0]
    extra = {name: value for name, value in found.items() if name not in _OWN | {TRACEBACK}}
    text = f"{time} {found[SERVICE]} {found[LEVEL]} {found[MESSAGE]}{_fields(extra)}"
    return f"{text}\n{found[TRACEBACK]}" if found.get(TRACEBACK) else text


def is_json(line: str) -> bool:
    """Whether a service wrote the line as an object."""
    return _read(line) is not None


def _read(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.keys() >= _OWN else None


def _fields(extra: Mapping[str, Any]) -> str:
    return "".join(f" {name}={value}" for name, value in extra.items() if value not in ("", None))
