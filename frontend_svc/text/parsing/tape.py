"""What readers read: one character, run or tag at a time, asked for by `yield` and brought by whoever has it.

A reader is a generator. What it does cannot depend on how the output was cut into steps: it sees single characters,
and runs only where any part of one is treated alike.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from typing import TypeVar

from frontend_svc.text.parsing.pieces import END, End, Item, Tag

T = TypeVar("T")
Reading = Generator[None, Item, T]
"""Is sent the next item at each yield, and returns what it read."""


class Tape:
    """Items that were read and not wanted can be put back; what is read can be recorded as text."""

    def __init__(self) -> None:
        self._text, self._place = "", 0
        """The newest run, and how much of it was read."""
        self._back: list[Item] = []
        self.is_whole = False
        """Known at the end: the model ended the output itself."""
        self._ended = False
        self._record: list[str] | None = None

    def next(self) -> Reading[Item]:
        """One character, a tag, or the end, which comes again and again."""
        if self._back:
            item = self._back.pop()
            if isinstance(item, str) and len(item) > 1:
                self._back += reversed(item)
                item = self._back.pop()
        else:
            if self._place == len(self._text):
                if self._ended:
                    return END
                item = yield
                if not isinstance(item, str):
                    return self._take(item)
                self._text, self._place = item, 0
            item = self._text[self._place]
            self._place += 1
        return self._take(item)

    def run(self) -> Reading[Item]:
        """As much text as there is, a tag, or the end."""
        item: Item
        if self._back:
            return self._take(self._back.pop())
        if self._place < len(self._text):
            item, self._place = self._text[self._place :], len(self._text)
        elif self._ended:
            return END
        else:
            item = yield
            if isinstance(item, str):
                self._text, self._place = item, len(item)
        return self._take(item)

    def back(self, *items: Item) -> None:
        """Puts items back, to be read next in this order."""
        for item in reversed(items):
            if isinstance(item, End) or not item:
                continue
            if isinstance(item, str) and self._is_behind(item):
                self._place -= len(item)
            else:
                self._back.append(item)
            self._forget(len(item) if isinstance(item, str) else len(item.text))

    def space(self) -> Reading[str]:
        """The space that comes next, perhaps none."""
        space = ""
        while True:
            item = yield from self.next()
            if not isinstance(item, str) or not item.isspace():
                self.back(item)
                return space
            space += item

    def behind_space(self) -> Reading[Item]:
        """The next item that is no space."""
        yield from self.space()
        return (yield from self.next())

    def is_at_end(self) -> Reading[bool]:
        """Whether nothing comes any more."""
        item = yield from self.next()
        self.back(item)
        return item is END

    def until(self, tags: Collection[str]) -> Reading[str]:
        """All text in front of the first of `tags`, which is left, or of the end."""
        parts: list[str] = []
        while True:
            item = yield from self.run()
            if isinstance(item, End) or (isinstance(item, Tag) and item.text in tags):
                self.back(item)
                return "".join(parts)
            parts.append(item if isinstance(item, str) else item.text)

    def record(self, text: str = "") -> None:
        """Begins to keep what is read, behind `text`."""
        self._record = [text]

    def recorded(self) -> str:
        """What was read since then; keeps no more."""
        text, self._record = "".join(self._record or ()), None
        return text

    def _is_behind(self, text: str) -> bool:
        """Whether `text` is what was read last of the newest run: no copy of it is needed."""
        start = self._place - len(text)
        return not self._back and start >= 0 and self._text.startswith(text, start)

    def _take(self, item: Item) -> Item:
        if isinstance(item, End):
            self._ended = True
        elif self._record is not None:
            self._record.append(item if isinstance(item, str) else item.text)
        return item

    def _forget(self, num_characters: int) -> None:
        record = self._record
        while record and num_characters:
            last = record.pop()
            if len(last) > num_characters:
                record.append(last[:-num_characters])
            num_characters -= min(num_characters, len(last))
