"""What reads the calls of one family's language."""

from __future__ import annotations

from abc import ABC, abstractmethod

from frontend_svc.text.parsing.context import Context
from frontend_svc.text.parsing.pieces import Item, Tag
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
