"""Calls as a list of Python's: `[name(key=value, ...), other()]`, as the whole message (Llama 3.2 and 4)."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from frontend_svc.text.parsing.call_reader import CallReader
from frontend_svc.text.parsing.json_reader import parse_json
from frontend_svc.text.parsing.object_writer import ObjectWriter, properties_of, quote
from frontend_svc.text.parsing.pieces import END, Item, Tag
from frontend_svc.text.parsing.tape import Reading

START, STOP = "<|python_start|>", "<|python_end|>"
MAX_DEPTH = 32
MAX_VALUE_CHARS = 1 << 16
"""Longest value that is read as Python's, which takes some tens of milliseconds. A longer one is JSON where it is that,
and else a string of what was written."""
MAX_STRING_CHARS = 1 << 20
"""Longest string that is read as Python's: it takes no such time."""
_STRING = re.compile(r"""'(?:[^'\\\n]|\\.)*+'|"(?:[^"\\\n]|\\.)*+\"""")
_KEYWORD = re.compile(r"\s*([\w.$-]+)\s*=(?!=)")


class PythonicReader(CallReader):
    """Each argument is told when it is complete. One without a name has that of the property of the tool's schema at
    its place; where there is none, it is left out."""

    tags = (START, STOP)
    openers = (START,)
    initials = "["

    def read(self, opener: Item) -> Reading[None]:
        """Reads what `opener` begins; what is no call is told as text."""
        tape, emit = self._tape, self._emit
        text = opener.text if isinstance(opener, Tag) else str(opener)
        tape.record(text)
        if isinstance(opener, Tag):
            item = yield from tape.behind_space()
            if item != "[":
                tape.back(item)
                emit.text(tape.recorded())
                return
        name = yield from self._read_name()
        text = tape.recorded()
        if name is None:
            item = yield from tape.next()
            tape.back(item)
            if item is not END or not self._may_be_call(text):
                emit.text(text)
            return
        while name is not None:
            yield from self._read_call(name)
            item = yield from tape.behind_space()
            if item == ",":
                tape.record(item)
                name = yield from self._read_name()
                rest = tape.recorded()
                if name is None and not (yield from tape.is_at_end()):
                    emit.text(rest)
                continue
            yield from self._read_stop(item)
            return

    def _read_stop(self, item: Item) -> Reading[None]:
        """The closing bracket and the closing tag, where they are there."""
        tape = self._tape
        if item == "]":
            item = yield from tape.behind_space()
        if not (isinstance(item, Tag) and item.text == STOP):
            tape.back(item)

    def _may_be_call(self, text: str) -> bool:
        tagged = text.startswith(START)
        written = text.removeprefix(START).strip().removeprefix("[").strip()
        return (tagged or bool(written)) and any(name.startswith(written) for name in self._context.tools)

    def _read_name(self) -> Reading[str | None]:
        """The name of a tool that there is, with the bracket behind it; None: no such thing."""
        yield from self._tape.space()
        name = ""
        while True:
            item = yield from self._tape.next()
            if item == "(":
                return name if name in self._context.tools else None
            if not isinstance(item, str) or not (item.isalnum() or item in "_.-"):
                self._tape.back(item)
                return None
            name += item

    def _read_call(self, name: str) -> Reading[None]:
        emit = self._emit
        emit.start(name)
        writer = ObjectWriter(emit)
        places = iter(properties_of(self._context.tools[name]))
        while True:
            written, end = yield from self._read_argument()
            if end is END:
                return
            match = _KEYWORD.match(written)
            key = match[1] if match else next(places, "") if written.strip() else ""
            if key:
                writer.key(key)
                writer.value(_to_json(written[match.end() if match else 0 :]))
            if end == ")":
                writer.close()
                return

    def _read_argument(self) -> Reading[tuple[str, Item]]:
        """One argument as it is written, and the comma, bracket or end behind it."""
        tape = self._tape
        written: list[str] = []
        depth, quote_mark, escaped = 0, "", False
        while True:
            item = yield from tape.next()
            if item is END:
                return "".join(written), item
            text = item.text if isinstance(item, Tag) else str(item)
            if escaped:
                escaped = False
            elif quote_mark:
                escaped = text == "\\"
                quote_mark = "" if text == quote_mark else quote_mark
            elif text in ("'", '"'):
                quote_mark = text
            elif text in "([{":
                depth += 1
            elif depth == 0 and text in (",", ")"):
                return "".join(written), item
            elif text in ")]}":
                depth -= 1
            written.append(text)


def _to_json(written: str) -> str:
    """A value of Python as JSON; what is none is a string."""
    text = written.strip()
    if _is_quick(text) and not _is_deep(text):
        try:
            return _dump(_plain(ast.literal_eval(text)))
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            pass
    try:
        parse_json(text)
    except ValueError:
        return quote(text)
    return text


def _is_quick(text: str) -> bool:
    if len(text) <= MAX_VALUE_CHARS:
        return True
    return len(text) <= MAX_STRING_CHARS and _STRING.fullmatch(text) is not None


def _dump(value: Any) -> str:
    """Half a character, which Python can write with an escape, stays an escape: no other text can have it."""
    written = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return written if written.isascii() or _is_unicode(written) else json.dumps(value, allow_nan=False)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_deep(text: str) -> bool:
    """Any bracket or sign may nest: too many are not handed to a parser that recurses."""
    depth = deepest = signs = 0
    for character in text:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth -= 1
        signs = signs + 1 if character in "-+~" else 0
        deepest = max(deepest, signs)
    return deepest > MAX_DEPTH


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError("no JSON")
