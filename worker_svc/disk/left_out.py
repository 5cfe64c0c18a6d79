"""Entries of a directory that cannot be used, by name: each is left out for a time and then tried again. Pure: the
caller has the clock and the lock."""

from __future__ import annotations

import errno
from collections.abc import Collection
from dataclasses import dataclass, field

FIRST_S = 60.0
MOST_S = 3600.0
"""For how long an entry is left out; twice as long each time in a row, from the first to the second."""
_OF_PROCESS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}


def is_of_process(error: Exception) -> bool:
    """The process has no room for what is to be done: no entry is at fault."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _OF_PROCESS)


@dataclass
class _Entry:
    until: float
    pause_s: float = FIRST_S
    is_wrong: bool = False
    """It is to be deleted, and could not be."""
    contents: frozenset[bytes] = frozenset()
    """Names of what it holds, as far as that is known."""
    unread: set[bytes] = field(default_factory=set)
    """Contents that could not be read, and have not been read since."""
    is_tried: bool = False
    """It is in use again, and what could not be read has not been read yet."""


class LeftOut:
    """Names of entries, and until when they are left out."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return sum(not entry.is_tried for entry in self._entries.values())

    def add(self, name: str, now: float, *, is_wrong: bool = False) -> bool:
        """Leaves an entry out for a time. is_wrong: it is to be deleted. True: that is news."""
        found = self._entries.get(name)
        if found is None:
            self._entries[name] = _Entry(now + FIRST_S, is_wrong=is_wrong)
            return True
        found.is_tried = False
        if now >= found.until:
            found.pause_s = min(2 * found.pause_s, MOST_S)
            found.until = now + found.pause_s
        is_news = is_wrong and not found.is_wrong
        found.is_wrong |= is_wrong
        return is_news

    def add_unread(self, name: str, now: float, content: bytes, contents: Collection[bytes]) -> bool:
        """Leaves out an entry that holds these contents, for one of them cannot be read. True: that is news."""
        is_news = self.add(name, now)
        found = self._entries[name]
        found.contents = frozenset(contents)
        found.unread.add(content)
        return is_news

    def holders(self, contents: Collection[bytes]) -> list[str]:
        """Names of the entries that are known to hold any of these contents."""
        return [name for name, entry in self._entries.items() if not entry.contents.isdisjoint(contents)]

    def take(self, name: str) -> bool:
        """The entry can be opened: it is in use again, but how often it has failed is kept until what could not be
        read has been read. True: it was left out, and now is forgotten."""
        found = self._entries.get(name)
        if found is not None and found.unread:
            found.is_tried = True
            return False
        return self.forget(name)

    def has_read(self, name: str, contents: Collection[bytes]) -> bool:
        """Notes that contents of the entry have been read. True: the entry was left out, and now is forgotten."""
        found = self._entries.get(name)
        if found is None or not found.is_tried:
            return False
        found.unread.difference_update(contents)
        return not found.unread and self.forget(name)

    def is_out(self, name: str, now: float) -> bool:
        """The entry is to be left alone now."""
        found = self._entries.get(name)
        return found is not None and now < found.until

    def is_wrong(self, name: str) -> bool:
        """The entry is there to be deleted."""
        found = self._entries.get(name)
        return found is not None and found.is_wrong

    def forget(self, name: str) -> bool:
        """The entry can be used, or is gone. True: it was left out."""
        return self._entries.pop(name, None) is not None

    def keep(self, seen: Collection[str]) -> None:
        """Only these are there."""
        self._entries = {name: entry for name, entry in self._entries.items() if name in seen}
