"""Reads one call of a tool, a JSON object with `name` and `arguments`, from text that arrives in pieces."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import orjson

_HEAD = re.compile(
    r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=[{\[])', re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Text:
    """Text that is no call."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """The beginning of a call: which one, and of which function."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next piece of the arguments of a call, which are JSON when put together."""

    index: int
    text: str


Event = Text | CallStart | CallArguments


class JsonValue:
    """Follows one JSON object or array to its closing bracket."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def end(self, text: str) -> int:
        """Index behind the closing bracket in `text`, the next piece of the value; 0: it is not there yet."""
        for index, character in enumerate(text, 1):
            if self._escaped:
                self._escaped = False
            elif self._in_string:
                self._escaped = character == "\\"
                self._in_string = character != '"'
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth == 0:
                    return index
        return 0


class CallReader:
    """Reads one object with `name` and `arguments`."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._held = ""
        self._begun = False
        self._whole = JsonValue()
        self._arguments: JsonValue | None = None
        """Set while the arguments are being passed on."""
        self._behind_arguments = False

    def push(self, text: str) -> tuple[list[Event], str | None]:
        """The events of the next piece; and what follows the object, once it has ended."""
        if not self._begun and (written := (self._held + text).lstrip()):
            self._begun = True
            if not written.startswith("{"):
                return [Text("")], self._held + text
        end = self._whole.end(text)
        mine, rest = (text[:end], text[end:]) if end else (text, None)
        self._held += mine
        events: list[Event] = []
        if self._arguments is None and not self._behind_arguments:
            events += self._read_head()
        if self._arguments is not None:
            events += self._pass_arguments()
        if rest is not None and not self._behind_arguments:
            events += self._read_whole()
        return events, rest

    def flush(self) -> list[Event]:
        """The output ended within the object: what is known of a call stands, else it was text."""
        if self._arguments is not None or self._behind_arguments:
            return []
        return [Text(self._held)]

    def _read_head(self) -> list[Event]:
        """The start of the call, once its name is known and its arguments begin."""
        head = _HEAD.match(self._held)
        name = None if head is None else _parse(head[1])
        if head is None or name is None:
            return []
        self._held, self._arguments = self._held[head.end() :], JsonValue()
        return [CallStart(self._index, name)]

    def _pass_arguments(self) -> list[Event]:
        assert self._arguments is not None
        piece, self._held = self._held, ""
        if end := self._arguments.end(piece):
            piece, self._arguments, self._behind_arguments = piece[:end], None, True
        return [CallArguments(self._index, piece)] if piece else []

    def _read_whole(self) -> list[Event]:
        """An object that is written in another order, without arguments, or is no call."""
        call = _parse(self._held)
        name = call.get("name") if isinstance(call, dict) else None
        if not isinstance(name, str):
            return [Text(self._held)]
        arguments = call.get("arguments", call.get("parameters", {}))
        written = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
        return [CallStart(self._index, name), CallArguments(self._index, written)]


def _parse(text: str) -> Any:
    """The JSON value; None: it is none, or one that could not be written again."""
    try:
        value = orjson.loads(text)
        orjson.dumps(value)
    except (ValueError, TypeError):
        return None
    return value
