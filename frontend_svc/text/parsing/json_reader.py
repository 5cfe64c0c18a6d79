"""Reads JSON as models write it: it may be cut, damaged, or quote the tags that end it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

import orjson

from frontend_svc.text.parsing.pieces import END, Tag
from frontend_svc.text.parsing.tape import Reading, Tape

_PAIRS = {"}": "{", "]": "["}
_MARK = re.compile(r'["\\{}\[\]]')
"""What alone changes where in a value a reader is."""
_LITERAL = re.compile(r"[^\s,}\]]")


class JsonFollower:
    """Follows one JSON object or array to its closing bracket."""

    def __init__(self) -> None:
        self.in_string = False
        self._stack: list[str] = []
        self._num_open = {"{": 0, "[": 0}
        self._escaped = False

    def feed(self, character: str) -> bool:
        """Takes the next character; whether the value ends with it. A bracket of the wrong kind closes what it can."""
        if self._escaped:
            self._escaped = False
        elif self.in_string:
            self._escaped = character == "\\"
            self.in_string = character != '"'
        elif character == '"':
            self.in_string = True
        elif character in "{[":
            self._stack.append(character)
            self._num_open[character] += 1
        elif character in "}]":
            if self._num_open[_PAIRS[character]]:
                self._close(_PAIRS[character])
            return not self._stack
        return False

    def follow(self, text: str) -> int | None:
        """How much of `text` belongs to the value; None: all of it, and the value goes on."""
        place = int(self._escaped)
        self._escaped = False
        while match := _MARK.search(text, place):
            place = match.end()
            if match[0] != "\\":
                if self.feed(match[0]):
                    return place
            elif self.in_string:
                self._escaped = place == len(text)
                place += 1
        return None

    def _close(self, bracket: str) -> None:
        """Up to the newest of these."""
        while True:
            last = self._stack.pop()
            self._num_open[last] -= 1
            if last == bracket:
                return


def parse_json(text: str) -> Any:
    """The value. Raises ValueError for what is no JSON or could not be written again."""
    value = orjson.loads(text)
    try:
        orjson.dumps(value)
    except TypeError as error:
        raise ValueError(str(error)) from None
    return value


def read_string(tape: Tape) -> Reading[str | None]:
    """A string whose opening quote was read; None: it does not end, or is none."""
    written = ['"']
    escaped = False
    while True:
        item = yield from tape.next()
        if item is END:
            tape.back(item)
            return None
        assert isinstance(item, str | Tag)
        text = item if isinstance(item, str) else item.text
        written.append(text)
        if escaped:
            escaped = False
        elif text == "\\":
            escaped = True
        elif text == '"':
            break
    try:
        return str(parse_json("".join(written)))
    except ValueError:
        return None


def read_value(tape: Tape, ends: Collection[str], sink: Callable[[str], None]) -> Reading[bool]:
    """Passes one JSON value on to `sink`, up to its own end, or to one of the tags `ends` where it lacks that.

    Such a tag inside a string ends the value only where the output or the next call follows: else the string quotes
    it. The tag is left on the tape. Returns whether the value is complete.
    """
    first = yield from tape.behind_space()
    tape.back(first)
    if first not in ("{", "["):
        return (yield from _read_scalar(tape, ends, sink))
    follower = JsonFollower()
    while True:
        item = yield from tape.run()
        if isinstance(item, str):
            length = follower.follow(item)
            sink(item[:length])
            if length is not None:
                tape.back(item[length:])
                return True
        elif isinstance(item, Tag):
            if item.text not in ends:
                sink(item.text)
                continue
            if not follower.in_string or (yield from is_really_the_end(tape, ends)):
                tape.back(item)
                return False
            sink(item.text)
        else:
            return False


def is_really_the_end(tape: Tape, ends: Collection[str]) -> Reading[bool]:
    """Whether nothing but space stands before the end of the output, or before another of the tags."""
    space = yield from tape.space()
    item = yield from tape.next()
    tape.back(space, item)
    return item is END or (isinstance(item, Tag) and item.text in ends)


def _read_scalar(tape: Tape, ends: Collection[str], sink: Callable[[str], None]) -> Reading[bool]:
    """A string, a number or a word; of anything else as much as there is up to one of `ends`."""
    item = yield from tape.next()
    if item == '"':
        tape.back(item)
        return (yield from _read_quoted(tape, ends, sink))
    while isinstance(item, str) and _LITERAL.match(item):
        sink(item)
        item = yield from tape.next()
    tape.back(item)
    return item is not END


def _read_quoted(tape: Tape, ends: Collection[str], sink: Callable[[str], None]) -> Reading[bool]:
    follower = JsonFollower()
    begun = False
    while True:
        item = yield from tape.next()
        if isinstance(item, str):
            sink(item)
            follower.feed(item)
            if begun and not follower.in_string:
                return True
            begun = True
        elif isinstance(item, Tag):
            if item.text in ends and (yield from is_really_the_end(tape, ends)):
                tape.back(item)
                return False
            sink(item.text)
        else:
            return False
