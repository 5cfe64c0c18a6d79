"""Gemma 4: `<|tool_call>call:name{key:<|"|>text<|"|>,number:42}<tool_call|>`."""

from __future__ import annotations

from frontend_svc.text.parsing.context import Context
from frontend_svc.text.parsing.json_reader import parse_json
from frontend_svc.text.parsing.object_writer import quote
from frontend_svc.text.parsing.pieces import END, Item, Tag
from frontend_svc.text.parsing.tape import Reading

CALL, END_CALL = "<|tool_call>", "<tool_call|>"
MARK = '<|"|>'
"""Stands around strings."""
_WORD = "call:"


class GemmaReader:
    """Rewrites the arguments as JSON: keys are bare there, and strings stand between marks."""

    tags = (CALL, END_CALL, MARK)
    openers = (CALL,)
    inner: tuple[str, ...] = ()
    initials = ""

    def __init__(self, context: Context) -> None:
        self._context = context

    def read(self, opener: Item) -> Reading[None]:
        """Reads what `opener` begins; what is no call is told as text."""
        tape, emit = self._context.tape, self._context.emit
        assert isinstance(opener, Tag)
        tape.record(opener.text)
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
            item = yield from self._context.tape.next()
            if not isinstance(item, str) or item in "{\n":
                self._context.tape.back(item)
                return head
            head += item

    def _read_close(self) -> Reading[None]:
        tape = self._context.tape
        space = yield from tape.space()
        item = yield from tape.next()
        while item == "}":
            space = yield from tape.space()
            item = yield from tape.next()
        if not (isinstance(item, Tag) and item.text == END_CALL):
            tape.back(space, item)


class _Rewriter:
    """One object behind its opening brace, with what is nested in it."""

    def __init__(self, context: Context) -> None:
        self._tape, self._write = context.tape, context.emit.arguments
        self._stack = ["{"]
        self._word: list[str] = []
        self._at_key = True

    def read(self) -> Reading[None]:
        """Up to its closing brace, the closing tag, or the end."""
        self._write("{")
        while self._stack:
            item = yield from self._tape.next()
            if isinstance(item, Tag) and item.text == MARK:
                yield from self._read_string()
            elif item is END:
                return
            elif isinstance(item, Tag):
                self._tape.back(item)
                self._flush_word()
                while self._stack:
                    self._close()
                return
            else:
                self._take(str(item))

    def _take(self, character: str) -> None:
        if character == ":" and self._at_key:
            self._write(quote("".join(self._word).strip().strip('"')) + ": ")
            self._word, self._at_key = [], False
        elif character in "{[":
            self._flush_word()
            self._write(character)
            self._stack.append(character)
            self._at_key = character == "{"
        elif character in "}]":
            self._flush_word()
            self._close()
        elif character == ",":
            self._flush_word()
            self._write(", ")
            self._at_key = self._stack[-1] == "{"
        else:
            self._word.append(character)

    def _close(self) -> None:
        self._write("}" if self._stack.pop() == "{" else "]")
        self._at_key = False

    def _flush_word(self) -> None:
        """A bare value: a number, a word of JSON, or a string without marks."""
        word, self._word = "".join(self._word).strip(), []
        if word:
            self._write(_bare(word))

    def _read_string(self) -> Reading[None]:
        if self._at_key:
            self._word = [(yield from self._tape.until((MARK,)))]
            yield from self._tape.next()
            return
        self._write('"')
        while True:
            item = yield from self._tape.run()
            if item is END:
                return
            if isinstance(item, Tag) and (item.text == MARK or (yield from self._is_really_the_end(item))):
                break
            self._write(quote(item.text if isinstance(item, Tag) else str(item))[1:-1])
        self._write('"')

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


def _bare(word: str) -> str:
    if word in ("None", "none"):
        return "null"
    try:
        parse_json(word)
    except ValueError:
        return {"True": "true", "False": "false"}.get(word) or quote(word)
    return word
