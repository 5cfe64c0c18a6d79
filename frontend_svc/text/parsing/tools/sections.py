"""Calls in sections of special tokens: DeepSeek V3 and V3.1, Kimi K2, Mistral."""

from __future__ import annotations

import re
import secrets
import string
from abc import abstractmethod

from frontend_svc.text.parsing.call_object import Outcome, read_call
from frontend_svc.text.parsing.call_reader import TagReader
from frontend_svc.text.parsing.context import Context
from frontend_svc.text.parsing.json_reader import read_value
from frontend_svc.text.parsing.pieces import END, Tag
from frontend_svc.text.parsing.tape import Reading

_ALPHABET = string.ascii_letters + string.digits
_KIMI_ID = re.compile(r"(?:functions\.)?(.+?)(?::\d+)?")


def make_mistral_id() -> str:
    """Nine letters and digits: its templates take no other."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(9))


class SectionReader(TagReader):
    """`BEGIN name SEPARATOR {...} END`, any number of them, with tags of a section around all."""

    section, section_end, call, separator, call_end = "", "", "", "", ""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.tags = (self.section, self.section_end, self.call, self.separator, self.call_end)
        self.openers = (self.section, self.call)
        self.inner = (self.call,)
        self._ends = (self.call_end, self.section_end, self.call, self.section)

    def _read(self, opener: Tag) -> Reading[None]:
        tape = self._tape
        if opener.text == self.section:
            item = yield from tape.behind_space()
            if not (isinstance(item, Tag) and item.text == self.call):
                tape.back(item)
                text = tape.recorded()
                if item is not END or text.strip() == opener.text:
                    self._emit.text(text)
                return
            tape.recorded()
            opener = item
        while (yield from self._read_call(opener)):
            item = yield from tape.behind_space()
            while isinstance(item, Tag) and item.text == self.section:
                item = yield from tape.behind_space()
            if not (isinstance(item, Tag) and item.text == self.call):
                if not (isinstance(item, Tag) and item.text == self.section_end):
                    tape.back(item)
                return
            opener = item

    def _read_call(self, opener: Tag) -> Reading[bool]:
        """Whether there was one; what is none is told as text."""
        tape, emit = self._tape, self._emit
        tape.record(opener.text)
        written = yield from tape.until(self.tags)
        item = yield from tape.next()
        if isinstance(item, Tag) and item.text == self.separator:
            name, call_id = yield from self._read_name(written)
            if name in self._context.tools:
                tape.recorded()
                emit.start(name, call_id)
                yield from read_value(tape, self._ends, emit.arguments)
                yield from self._skip_rest()
                return True
            written = name
            item = yield from tape.next()
        tape.back(item)
        text = tape.recorded()
        if item is not END or not self._begins_name(written.strip()) or text.strip() == opener.text:
            emit.text(text)
        return False

    @abstractmethod
    def _read_name(self, written: str) -> Reading[tuple[str, str]]:
        """Name and id, of what stands before the separator; an empty id: one is made."""

    def _begins_name(self, written: str) -> bool:
        """Whether the output may have ended within what stands before the separator, or within the name."""
        return any(known.startswith(written) for known in self._context.tools)

    def _skip_rest(self) -> Reading[None]:
        """What stands behind the arguments, which is nothing but damage, and the end of the call."""
        tape = self._tape
        yield from tape.until(self._ends)
        item = yield from tape.next()
        if item is not END:
            self._emit.end_call()
        if not (isinstance(item, Tag) and item.text == self.call_end):
            tape.back(item)


class DeepSeekReader(SectionReader):
    """V3 writes the kind before the separator, and the name and a fence behind it; V3.1 the name before it."""

    section, section_end = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
    call, separator, call_end = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"

    def _read_name(self, written: str) -> Reading[tuple[str, str]]:
        if written.strip() != "function" or "function" in self._context.tools:
            return written.strip(), ""
        tape, name = self._tape, ""
        while True:
            item = yield from tape.next()
            if not isinstance(item, str) or item == "\n":
                break
            name += item
        item = yield from tape.next()
        while isinstance(item, str) and item not in "{\n":
            item = yield from tape.next()
        tape.back(item)
        return name.strip(), ""

    def _begins_name(self, written: str) -> bool:
        return "function".startswith(written) or super()._begins_name(written)


class KimiReader(SectionReader):
    """The name is part of an id: `functions.name:0`."""

    section, section_end = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
    call, separator, call_end = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"

    def _read_name(self, written: str) -> Reading[tuple[str, str]]:
        yield from ()
        match = _KIMI_ID.fullmatch(written.strip())
        if match is None:
            return "", ""
        name = match[1]
        index = written.strip().rpartition(":")[2]
        if not index.isdecimal():
            index = str(self._emit.num_calls)
        return name, f"functions.{name}:{index}"

    def _begins_name(self, written: str) -> bool:
        name = written.removeprefix("functions.").partition(":")[0]
        return "functions.".startswith(written) or super()._begins_name(name)


class MistralReader(TagReader):
    """`[TOOL_CALLS][{"name": ..., "arguments": ...}, ...]`, and newer `[TOOL_CALLS]name[ARGS]{...}`, perhaps with
    `[CALL_ID]id` behind the name, and perhaps without `[ARGS]`."""

    tags = ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]")
    openers = ("[TOOL_CALLS]",)

    def _read(self, opener: Tag) -> Reading[None]:
        tape = self._tape
        item = yield from tape.behind_space()
        if item == "[":
            yield from self._read_list()
        elif item == "{":
            tape.back(item)
            yield from self._read_object()
        else:
            tape.back(item)
            yield from self._read_named(opener)

    def _read_list(self) -> Reading[None]:
        """Objects up to the closing bracket; all of a list that begins with no call is text."""
        tape = self._tape
        while (yield from self._read_object()):
            while True:
                space = yield from tape.space()
                item = yield from tape.next()
                if item not in (",", "}"):
                    break
            if item == "{":
                tape.back(item)
                tape.record()
                continue
            if item != "]":
                tape.back(space, item)
            return

    def _read_object(self) -> Reading[bool]:
        outcome = yield from read_call(self._context, self.openers)
        text = self._tape.recorded()
        if outcome is Outcome.TEXT:
            self._emit.text(text)
        return outcome is Outcome.CALL

    def _read_named(self, opener: Tag) -> Reading[None]:
        tape, emit = self._tape, self._emit
        name = yield from self._read_word()
        call_id = ""
        item = yield from tape.next()
        if isinstance(item, Tag) and item.text == "[CALL_ID]":
            call_id = yield from self._read_word()
            item = yield from tape.next()
        is_args = isinstance(item, Tag) and item.text == "[ARGS]"
        if not is_args:
            tape.back(item)
        text = tape.recorded()
        if name not in self._context.tools or not (is_args or item == "{"):
            if not (name and (yield from self._is_cut(name))):
                emit.text(text)
            return
        emit.start(name, call_id.strip())
        yield from read_value(tape, self.openers, emit.arguments)
        if not (yield from tape.is_at_end()):
            emit.end_call()

    def _is_cut(self, name: str) -> Reading[bool]:
        """The output ends within a name of a tool, or within the tag behind it."""
        tape, begun = self._tape, ""
        while True:
            item = yield from tape.next()
            if item is END:
                return any(known.startswith(name) for known in self._context.tools)
            if not isinstance(item, str) or not any(tag.startswith(begun + item) for tag in self.tags):
                tape.back(begun, item)
                return False
            begun += item

    def _read_word(self) -> Reading[str]:
        """Up to the next tag, bracket or line."""
        tape, word = self._tape, ""
        while True:
            item = yield from tape.next()
            if not isinstance(item, str) or item in "{[\n":
                tape.back(item)
                return word.strip()
            word += item
