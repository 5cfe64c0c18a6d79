"""GLM 4.x: `<tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value>...</tool_call>`."""

from __future__ import annotations

from frontend_svc.text.parsing.call_reader import TagReader
from frontend_svc.text.parsing.object_writer import ObjectWriter, property_kinds
from frontend_svc.text.parsing.pieces import END, Tag
from frontend_svc.text.parsing.tape import Reading
from frontend_svc.text.parsing.tools.values import by_schema, read_bare_value

CALL, END_CALL = "<tool_call>", "</tool_call>"
KEY, END_KEY = "<arg_key>", "</arg_key>"
VALUE, END_VALUE = "<arg_value>", "</arg_value>"
_ENDS = {END_VALUE: (KEY, END_CALL), END_CALL: (CALL,)}
"""What follows a tag that really ends a value."""


class GlmReader(TagReader):
    """Names and keys stand bare, values as text or JSON, as the tool's schema has it."""

    tags = (CALL, END_CALL, KEY, END_KEY, VALUE, END_VALUE)
    openers = (CALL,)

    def _read(self, opener: Tag) -> Reading[None]:
        tape, emit = self._tape, self._emit
        name = yield from self._read_name()
        text = tape.recorded()
        if name not in self._context.tools:
            item = yield from tape.next()
            tape.back(item)
            cut = item is END and any(known.startswith(name) for known in self._context.tools)
            if not cut or text.strip() == opener.text:
                emit.text(text)
            return
        emit.start(name)
        writer = ObjectWriter(emit)
        while (yield from self._read_member(name, writer)):
            pass

    def _read_name(self) -> Reading[str]:
        """What stands on the first line, or up to the next tag."""
        yield from self._tape.space()
        name = ""
        while True:
            item = yield from self._tape.next()
            if not isinstance(item, str) or item == "\n":
                self._tape.back(item)
                return name.strip()
            name += item

    def _read_member(self, name: str, writer: ObjectWriter) -> Reading[bool]:
        """One argument, or the end of the call; whether there may be another."""
        tape = self._tape
        item = yield from tape.behind_space()
        if item is END:
            return False
        if isinstance(item, Tag) and item.text == KEY:
            return (yield from self._read_argument(name, writer))
        if isinstance(item, Tag) and item.text in (CALL, END_CALL):
            if item.text == CALL:
                tape.back(item)
            writer.close()
            return False
        return True

    def _read_argument(self, name: str, writer: ObjectWriter) -> Reading[bool]:
        tape = self._tape
        key = (yield from tape.until(self.tags)).strip()
        item = yield from tape.next()
        if isinstance(item, Tag) and item.text == END_KEY:
            item = yield from tape.behind_space()
        if not (isinstance(item, Tag) and item.text == VALUE):
            tape.back(item)
            return item is not END
        writer.key(key)
        converter = by_schema(property_kinds(self._context.tools[name], key))
        complete = yield from read_bare_value(tape, writer, self._is_end, converter, trim=False)
        if complete:
            item = yield from tape.next()
            if not (isinstance(item, Tag) and item.text == END_VALUE):
                tape.back(item)
        return complete

    def _is_end(self, tag: Tag) -> Reading[bool]:
        if tag.text not in _ENDS:
            return False
        tape = self._tape
        space = yield from tape.space()
        item = yield from tape.next()
        tape.back(space, item)
        return item is END or (isinstance(item, Tag) and item.text in _ENDS[tag.text])
