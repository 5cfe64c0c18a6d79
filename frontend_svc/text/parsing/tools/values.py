"""Values of arguments that stand between tags as bare text."""

from __future__ import annotations

from collections.abc import Callable

from frontend_svc.text.parsing.object_writer import ObjectWriter, convert
from frontend_svc.text.parsing.pieces import End, Tag
from frontend_svc.text.parsing.tape import Reading, Tape

IsEnd = Callable[[Tag], Reading[bool]]
"""Whether a tag really ends the value, rather than being quoted in it; what it looks at is left on the tape."""
Convert = Callable[[str], str]


def read_bare_value(
    tape: Tape, writer: ObjectWriter, is_end: IsEnd, convert: Convert | None, *, trim: bool
) -> Reading[bool]:
    """Writes the value as JSON: a string as it comes, or (with `convert`) all of it at its end.

    trim: one line break after the opening tag and one before the closing one are not part of it. The tag that ends it
    is left on the tape; False: the output ended first, and no end is written.
    """
    text = _StringSink(writer) if convert is None else _Held()
    held = ""
    if trim:
        item = yield from tape.next()
        if item != "\n":
            tape.back(item)
    while True:
        item = yield from tape.run()
        if isinstance(item, End):
            text.part(held)
            text.cut(writer)
            return False
        if isinstance(item, Tag):
            if (yield from is_end(item)):
                tape.back(item)
                text.end(writer, convert)
                return True
            text.part(held + item.text)
            held = ""
            continue
        item = held + item
        held = "\n" if trim and item.endswith("\n") else ""
        text.part(item[: len(item) - len(held)])


class _StringSink:
    def __init__(self, writer: ObjectWriter) -> None:
        self._writer = writer
        writer.open_string()

    def part(self, text: str) -> None:
        self._writer.string_part(text)

    def cut(self, writer: ObjectWriter) -> None:
        pass

    def end(self, writer: ObjectWriter, convert: Convert | None) -> None:
        writer.close_string()


class _Held:
    def __init__(self) -> None:
        self._parts: list[str] = []

    def part(self, text: str) -> None:
        self._parts.append(text)

    def cut(self, writer: ObjectWriter) -> None:
        writer.value("".join(self._parts).strip())

    def end(self, writer: ObjectWriter, convert: Convert | None) -> None:
        assert convert is not None
        writer.value(convert("".join(self._parts)))


def by_schema(kinds: frozenset[str]) -> Convert | None:
    """None where the value is a string in any case."""
    if kinds <= {"string"}:
        return None
    return lambda text: convert(text, kinds)
