"""Calls as JSON objects between tags (Hermes, Qwen), or where a message begins with them (Llama 3)."""

from __future__ import annotations

from frontend_svc.text.parsing.call_object import Outcome, read_call
from frontend_svc.text.parsing.call_reader import CallReader, TagReader
from frontend_svc.text.parsing.context import Context
from frontend_svc.text.parsing.pieces import END, Item, Tag
from frontend_svc.text.parsing.tape import Reading, Tape

TOOL_CALL, END_TOOL_CALL = "<tool_call>", "</tool_call>"
PYTHON_TAG = "<|python_tag|>"


class HermesReader(TagReader):
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`; a list of such objects is read, too."""

    tags = (TOOL_CALL, END_TOOL_CALL)
    openers = (TOOL_CALL,)

    def _read(self, opener: Tag) -> Reading[None]:
        tape = self._tape
        yield from skip_bracket(tape)
        while True:
            outcome = yield from read_call(self._context, self.tags)
            text = tape.recorded()
            if outcome is not Outcome.CALL:
                if outcome is Outcome.TEXT or text.rstrip() == opener.text:
                    self._emit.text(text)
                return
            if not (yield from self._read_close()):
                return
            tape.record(opener.text)

    def _read_close(self) -> Reading[bool]:
        """The closing tag, and what damage may stand before it; whether another object does."""
        tape = self._tape
        while True:
            space = yield from tape.space()
            item = yield from tape.next()
            if item == "{":
                tape.back(item)
                return True
            if item in ("}", "]", ","):
                continue
            if not (isinstance(item, Tag) and item.text == END_TOOL_CALL):
                tape.back(space, item)
            return False


class LlamaJsonReader(CallReader):
    """`{"name": ..., "parameters": {...}}` as the whole message, several separated by semicolons or as a list; a tag
    may stand before them."""

    tags = (PYTHON_TAG,)
    openers = (PYTHON_TAG,)
    initials = "{["

    def read(self, opener: Item) -> Reading[None]:
        """Reads what `opener` begins; what is no call is told as text."""
        tape, emit = self._tape, self._emit
        if not isinstance(opener, Tag):
            tape.back(opener)
        tape.record()
        yield from skip_bracket(tape)
        while True:
            outcome = yield from read_call(self._context, self.tags)
            text = tape.recorded()
            if outcome is Outcome.TEXT:
                emit.text(text)
                return
            if outcome is Outcome.NOTHING:
                return
            if not (yield from self._goes_on()):
                return
            tape.record()

    def _goes_on(self) -> Reading[bool]:
        tape = self._tape
        while True:
            space = yield from tape.space()
            item = yield from tape.next()
            if item in (";", ",", "}", "]") or (isinstance(item, Tag) and item.text == PYTHON_TAG):
                continue
            tape.back(space, item)
            return item == "{"


class ListReader(CallReader):
    """A JSON array of calls and nothing else, as a grammar enforces it."""

    initials = "[{"

    def read(self, opener: Item) -> Reading[None]:
        """Reads what `opener` begins; what is no call is told as text."""
        tape = self._tape
        item = opener
        while item is not END:
            if item == "{":
                tape.back(item)
                tape.record()
                if (yield from read_call(self._context, ())) is Outcome.TEXT:
                    self._emit.text(tape.recorded())
                tape.recorded()
            item = yield from tape.next()


class NamedReader(CallReader):
    """One call of a tool that the client named: all that is written are its arguments."""

    initials = '{["-0123456789tfn'

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        (self._name,) = context.tools

    def read(self, opener: Item) -> Reading[None]:
        """Reads what `opener` begins; what is no call is told as text."""
        emit, item = self._emit, opener
        emit.start(self._name)
        while item is not END:
            emit.arguments(item.text if isinstance(item, Tag) else str(item))
            item = yield from self._tape.run()


def skip_bracket(tape: Tape) -> Reading[None]:
    """The bracket of a list, which says nothing that the objects in it do not."""
    item = yield from tape.behind_space()
    if item != "[":
        tape.back(item)
