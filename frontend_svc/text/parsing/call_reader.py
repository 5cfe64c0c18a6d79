"""What reads the calls of one family's language."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from frontend_svc.text.parsing.context import Context
from frontend_svc.text.parsing.pieces import Item, Tag
from frontend_svc.text.parsing.quotation import Quotation
from frontend_svc.text.parsing.tape import Reading


class CallReader(ABC):
    """Told by a parser where a call seems to begin; tells the calls and, of what is none, the text."""

    tags: tuple[str, ...] = ()
    """All marks of the language."""
    openers: tuple[str, ...] = ()
    """Tags that begin a call, or a section of calls."""
    inner: tuple[str, ...] = ()
    """Openers that mostly stand in a section: not believed behind a section that is quoted."""
    initials = ""
    """Characters that begin a call where nothing stands before them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tape, self._emit = context.tape, context.emit

    @abstractmethod
    def read(self, opener: Item) -> Reading[None]:
        """Reads what `opener`, a tag or one of `initials`, begins; what is no call is told as text."""


MakeReader = Callable[[Context], CallReader]
"""One reader for each output."""


class TagReader(CallReader):
    """Calls of this language begin with a tag and nothing else."""

    def read(self, opener: Item) -> Reading[None]:
        """Reads what `opener` begins; what is no call is told as text."""
        assert isinstance(opener, Tag)
        self._tape.record(opener.text)
        yield from self._read(opener)

    @abstractmethod
    def _read(self, opener: Tag) -> Reading[None]:
        """Reads what stands behind `opener`; the tape records both."""


class Openers:
    """Tells tags that begin a call from such that text quotes."""

    def __init__(self, reader: CallReader | None) -> None:
        """None: no tag begins a call."""
        self._openers = frozenset(reader.openers if reader else ())
        self._inner = frozenset(reader.inner if reader else ())
        self._follows_quote = False

    def begins_call(self, tag: Tag, quotation: Quotation) -> bool:
        """Whether `tag` does; `quotation` has all text in front of it."""
        if tag.text not in self._openers or self._is_quoted(tag, quotation):
            return False
        self._follows_quote = False
        return True

    def _is_quoted(self, tag: Tag, quotation: Quotation) -> bool:
        if tag.text in self._inner and (self._follows_quote or quotation.in_code):
            return True
        quoted = quotation.is_opened or (not tag.is_token and quotation.in_fence)
        self._follows_quote = self._follows_quote or quoted
        return quoted
