"""Gemma 4: `<|tool_call>call:name{key:<|"|>text<|"|>,number:42}<tool_call|>`."""

from __future__ import annotations

from dataclasses import dataclass, field

from frontend_svc.text.parsing.call_reader import TagReader
from frontend_svc.text.parsing.context import Context
from frontend_svc.text.parsing.json_reader import parse_json
from frontend_svc.text.parsing.object_writer import quote
from frontend_svc.text.parsing.pieces import END, Tag
from frontend_svc.text.parsing.tape import Reading

CALL, END_CALL = "<|tool_call>", "<tool_call|>"
MARK = '<|"|>'
"""Stands around strings."""
_WORD = "call:"


class GemmaReader(TagReader):
    """Rewrites the arguments as JSON: keys are bare there, and strings stand between marks."""

    tags = (CALL, END_CALL, MARK)
    openers = (CALL,)

    def _read(self, opener: Tag) -> Reading[None]:
        tape, emit = self._tape, self._emit
        head = yield from self._read_head()
        item = yield from tape.next()
        name = head.strip().removeprefix(_WORD).strip()
        if name in self._context.tools and item == "{":
            tape.recorded()
            emit.start(name)
            yield from _Rewriter(self._context).read()
            yield from self._read_close()
            return
        tape.back(item)
        text = tape.recorded()
        if (
            item is not END
            or not head
            or not any((_WORD + known).startswith(head) for known in self._context.tools)
        ):
            emit.text(text)

    def _read_head(self) -> Reading[str]:
        """What stands in front of the brace."""
        head = ""
        while True:
            item = yield from self._tape.next()
            if not isinstance(item, str) or item in "{\n":
                self._tape.back(item)
                return head
            head += item

    def _read_close(self) -> Reading[None]:
        tape = self._tape
        space = yield from tape.space()
        item = yield from tape.next()
        while item == "}":
            space = yield from tape.space()
            item = yield from tape.next()
        if not (isinstance(item, Tag) and item.text == END_CALL):
            tape.back(space, item)


@dataclass
class _Level:
    """An object or a list that is open."""

    is_object: bool
    is_told: bool = True
    """False: it is the value of a key that there was, or stands where none can."""
    keys: set[str] = field(default_factory=set)
    key: str | None = None
    """Key of the member that has begun; None: none has."""
    is_done: bool = False
    """The member has its value, or is to have none."""
    num_told: int = 0

    @property
    def is_at_key(self) -> bool:
        """A key comes next."""
        return self.is_object and self.key is None

    def begin_member(self, key: str) -> None:
        """One that there was is left out: the first has been told."""
        self.key, self.is_done = key, key in self.keys
        self.keys.add(key)


class _Rewriter:
    """One object behind its opening brace, with what is nested in it. What is told is JSON, whatever is written: a key
    without a value has null, and a value without a key, or behind another one, is left out."""

    def __init__(self, context: Context) -> None:
        self._tape, self._write = context.tape, context.emit.arguments
        self._levels = [_Level(is_object=True)]
        self._word: list[str] = []

    def read(self) -> Reading[None]:
        """Up to its closing brace, the closing tag, or the end."""
        self._write("{")
        while self._levels:
            item = yield from self._tape.next()
            if isinstance(item, Tag) and item.text == MARK:
                yield from self._read_string()
            elif item is END:
                return
            elif isinstance(item, Tag):
                self._tape.back(item)
                while self._levels:
                    self._close()
                return
            else:
                self._take(str(item))

    def _take(self, character: str) -> None:
        level = self._levels[-1]
        if character == ":" and level.is_at_key:
            level.begin_member(self._take_word().strip('"'))
        elif character in "{[":
            self._flush_word()
            told = self._begin_value()
            if told:
                self._write(character)
            self._levels.append(_Level(character == "{", told))
        elif character in "}]":
            self._close()
        elif character == ",":
            self._end_member()
        else:
            self._word.append(character)

    def _begin_value(self) -> bool:
        """Writes what stands in front of it; whether it is to be told."""
        level = self._levels[-1]
        told = level.is_told and not level.is_done and not level.is_at_key
        if told:
            before = f"{quote(level.key)}: " if level.key is not None else ""
            self._write((", " if level.num_told else "") + before)
            level.num_told += 1
        level.is_done = level.is_object and level.key is not None
        return told

    def _end_member(self) -> None:
        level = self._levels[-1]
        if level.is_at_key and (word := self._take_word()):
            level.begin_member(word)
        self._flush_word()
        if level.key is not None and not level.is_done and self._begin_value():
            self._write("null")
        level.key, level.is_done = None, False

    def _close(self) -> None:
        self._end_member()
        level = self._levels.pop()
        if level.is_told:
            self._write("}" if level.is_object else "]")

    def _take_word(self) -> str:
        word, self._word = "".join(self._word).strip(), []
        return word

    def _flush_word(self) -> None:
        """A bare value: a number, a word of JSON, or a string without marks."""
        if (word := self._take_word()) and self._begin_value():
            self._write(_bare(word))

    def _read_string(self) -> Reading[None]:
        if self._levels[-1].is_at_key:
            self._word = [(yield from self._tape.until((MARK,)))]
            yield from self._tape.next()
            return
        self._flush_word()
        write = self._write if self._begin_value() else _leave_out
        write('"')
        while True:
            item = yield from self._tape.run()
            if item is END:
                return
            if isinstance(item, Tag) and (item.text == MARK or (yield from self._is_really_the_end(item))):
                break
            write(quote(item.text if isinstance(item, Tag) else str(item))[1:-1])
        write('"')

    def _is_really_the_end(self, tag: Tag) -> Reading[bool]:
        """The closing tag of the call inside a string that was never closed."""
        if tag.text != END_CALL:
            return False
        space = yield from self._tape.space()
        item = yield from self._tape.next()
        self._tape.back(space, item)
        really = item is END or (isinstance(item, Tag) and item.text == CALL)
        if really:
            self._tape.back(tag)
        return really


def _leave_out(text: str) -> None:
    """Takes what is not told."""


def _bare(word: str) -> str:
    if word in ("None", "none"):
        return "null"
    try:
        parse_json(word)
    except ValueError:
        return {"True": "true", "False": "false"}.get(word) or quote(word)
    return word
