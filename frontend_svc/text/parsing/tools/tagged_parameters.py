"""Calls whose arguments stand between tags one by one: Qwen3-Coder's XML, DeepSeek's DSML, MiniMax."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from frontend_svc.text.parsing.call_reader import CallReader
from frontend_svc.text.parsing.context import Context
from frontend_svc.text.parsing.object_writer import ObjectWriter, as_json, property_kinds
from frontend_svc.text.parsing.pieces import END, Item, Tag
from frontend_svc.text.parsing.tape import Reading
from frontend_svc.text.parsing.tools.values import Convert, by_schema, read_bare_value

MAX_NAME_CHARS = 256


@dataclass(frozen=True)
class Dialect:
    """The marks of one language."""

    sections: tuple[str, ...]
    """Tags that may stand around calls."""
    section_ends: tuple[str, ...]
    call: str
    """Stands before a name."""
    call_end: str
    parameter: str
    """Stands before a key."""
    parameter_end: str
    trims: bool
    """Values stand on lines of their own."""

    @property
    def tags(self) -> tuple[str, ...]:
        """All of them."""
        inner = (self.call, self.call_end, self.parameter, self.parameter_end)
        return (*self.sections, *self.section_ends, *inner)


QWEN3_CODER = Dialect(
    ("<tool_call>",),
    ("</tool_call>",),
    "<function=",
    "</function>",
    "<parameter=",
    "</parameter>",
    trims=True,
)
_DSML = "｜DSML｜"
DSML = Dialect(
    (f"<{_DSML}function_calls>", f"<{_DSML}tool_calls>"),
    (f"</{_DSML}function_calls>", f"</{_DSML}tool_calls>"),
    f"<{_DSML}invoke ",
    f"</{_DSML}invoke>",
    f"<{_DSML}parameter ",
    f"</{_DSML}parameter>",
    trims=False,
)
MINIMAX = Dialect(
    ("<minimax:tool_call>",),
    ("</minimax:tool_call>",),
    "<invoke ",
    "</invoke>",
    "<parameter ",
    "</parameter>",
    trims=False,
)


class TaggedParametersReader(CallReader):
    """Reads one dialect."""

    def __init__(self, context: Context, dialect: Dialect) -> None:
        super().__init__(context)
        self._dialect = dialect
        self.tags = dialect.tags
        self.openers = (*dialect.sections, dialect.call)
        self.inner = (dialect.call,)

    def read(self, opener: Item) -> Reading[None]:
        """Reads a section of calls. A call may stand without the section's beginning, on a line of its own."""
        tape, dialect = self._tape, self._dialect
        assert isinstance(opener, Tag)
        if opener.text == dialect.call:
            if self._emit.last not in ("", "\n"):
                self._emit.text(opener.text)
            elif (yield from self._read_call(opener, "")):
                yield from self._read_others()
            return
        space = yield from tape.space()
        item = yield from tape.next()
        if isinstance(item, Tag) and item.text == dialect.call:
            if (yield from self._read_call(item, opener.text + space)):
                yield from self._read_others()
            return
        tape.back(item)
        begun = yield from self._read_begun()
        if not (begun and (yield from self._tape.is_at_end())):
            self._emit.text(opener.text + space + begun)

    def _read_begun(self) -> Reading[str]:
        """As much as there is of the mark of a call."""
        tape, begun = self._tape, ""
        while True:
            item = yield from tape.next()
            if not isinstance(item, str) or not self._dialect.call.startswith(begun + item):
                tape.back(item)
                return begun
            begun += item

    def _read_others(self) -> Reading[None]:
        """Behind a call: others, and the end of the section, which may be missing."""
        tape, dialect = self._tape, self._dialect
        while True:
            space = yield from tape.space()
            item = yield from tape.next()
            if isinstance(item, Tag) and item.text == dialect.call:
                if not (yield from self._read_call(item, "")):
                    return
                continue
            if not (isinstance(item, Tag) and item.text in dialect.section_ends):
                tape.back(space, item)
            return

    def _read_call(self, opener: Tag, before: str) -> Reading[bool]:
        """Whether there was one; `before` was read in front of it."""
        tape, emit = self._tape, self._emit
        tape.record(before + opener.text)
        name = yield from self._read_name()
        text = tape.recorded()
        if name is None or name not in self._context.tools:
            if name is not None or not (yield from self._tape.is_at_end()):
                emit.text(text)
            return False
        emit.start(name)
        writer = ObjectWriter(emit)
        while (yield from self._read_member(name, writer)):
            pass
        return True

    def _read_name(self) -> Reading[str | None]:
        """What stands up to the bracket, or in quotes in front of it; None: no bracket comes."""
        written = yield from self._read_head()
        return None if written is None else _attribute(written, "name")

    def _read_head(self) -> Reading[str | None]:
        written = ""
        while len(written) <= MAX_NAME_CHARS:
            item = yield from self._tape.next()
            if item == ">":
                return written
            if not isinstance(item, str) or item == "\n":
                self._tape.back(item)
                return None
            written += item
        return None

    def _read_member(self, name: str, writer: ObjectWriter) -> Reading[bool]:
        """One argument, or the end of the call; whether there may be another."""
        tape, dialect = self._tape, self._dialect
        item = yield from tape.behind_space()
        if item is END:
            return False
        if isinstance(item, Tag):
            if item.text == dialect.parameter:
                return (yield from self._read_parameter(name, writer))
            if item.text == dialect.call_end:
                writer.close()
                return False
            if item.text in self.openers or item.text in dialect.section_ends:
                tape.back(item)
                writer.close()
                return False
        return True  # damage between the arguments is left out

    def _read_parameter(self, name: str, writer: ObjectWriter) -> Reading[bool]:
        tape, dialect = self._tape, self._dialect
        head = yield from self._read_head()
        if head is None:
            return True
        key = _attribute(head, "name")
        writer.key(key)
        complete = yield from read_bare_value(
            tape, writer, self._is_end, self._converter(name, key, head), trim=dialect.trims
        )
        if complete:
            item = yield from tape.next()
            if not (isinstance(item, Tag) and item.text == dialect.parameter_end):
                tape.back(item)
        return complete

    def _converter(self, name: str, key: str, head: str) -> Convert | None:
        """A dialect may say itself whether a value is a string; else the tool's schema does."""
        if 'string="true"' in head:
            return None
        return (
            as_json if 'string="false"' in head else by_schema(property_kinds(self._context.tools[name], key))
        )

    def _is_end(self, tag: Tag) -> Reading[bool]:
        """A tag inside a value ends it only where the language goes on behind it: a file that is written may hold
        the same tags."""
        dialect = self._dialect
        follows = {
            dialect.parameter_end: (dialect.parameter, dialect.call_end, *dialect.section_ends),
            dialect.call_end: (dialect.call, *dialect.section_ends, *dialect.sections),
        } | dict.fromkeys(dialect.section_ends, dialect.sections)
        if tag.text not in follows:
            return False
        tape = self._tape
        space = yield from tape.space()
        item = yield from tape.next()
        tape.back(space, item)
        return item is END or (isinstance(item, Tag) and item.text in follows[tag.text])


def _attribute(written: str, name: str) -> str:
    """The value of `name="..."`, or all that is written where there is none."""
    _, found, behind = written.partition(f'{name}="')
    return behind.partition('"')[0] if found else written.strip().strip('"')


qwen3_coder = partial(TaggedParametersReader, dialect=QWEN3_CODER)
dsml = partial(TaggedParametersReader, dialect=DSML)
minimax = partial(TaggedParametersReader, dialect=MINIMAX)
