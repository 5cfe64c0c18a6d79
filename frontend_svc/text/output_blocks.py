"""One output as blocks that follow each other: reasoning, text, calls. Faces of agents tell their answers so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from frontend_svc.text.parsing.events import CallArguments, CallStart, Event, Reasoning, Text


class BlockKind(Enum):
    """What a block is."""

    REASONING = auto()
    TEXT = auto()
    CALL = auto()


@dataclass
class OutputBlock:
    """One block; it grows until the next one begins."""

    index: int
    """0 for the first of the output, and so on."""
    kind: BlockKind
    name: str = ""
    """The function that is called; empty: it is no call."""
    call_id: str = ""
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All of it so far; of a call its arguments."""
        return "".join(self.pieces)


@dataclass(frozen=True)
class Opened:
    """A block begins."""

    block: OutputBlock


@dataclass(frozen=True)
class Grown:
    """A block has a new piece."""

    block: OutputBlock
    piece: str


@dataclass(frozen=True)
class Closed:
    """Nothing follows in a block."""

    block: OutputBlock


Change = Opened | Grown | Closed


class OutputBlocks:
    """Makes blocks of events. White space alone is no block of text, unless nothing else comes at all."""

    def __init__(self) -> None:
        self.blocks: list[OutputBlock] = []
        self._open: OutputBlock | None = None
        self._space = ""
        """White space that may turn out to begin a block of text."""

    @property
    def has_calls(self) -> bool:
        """Whether a call has begun."""
        return any(block.kind is BlockKind.CALL for block in self.blocks)

    def push(self, events: Iterable[Event]) -> list[Change]:
        """What the next events change."""
        changes: list[Change] = []
        for event in events:
            match event:
                case Text(text):
                    self._push_text(text, changes)
                case Reasoning(text):
                    if self._open is None or self._open.kind is not BlockKind.REASONING:
                        self._begin(BlockKind.REASONING, changes)
                    self._grow(text, changes)
                case CallStart(_, name, call_id):
                    self._begin(BlockKind.CALL, changes, name, call_id)
                case CallArguments(_, text):
                    self._grow(text, changes)
        return changes

    def end(self) -> list[Change]:
        """What the end of the output changes; there is at least one block then."""
        changes: list[Change] = []
        if not self.blocks:
            self._begin(BlockKind.TEXT, changes)
            if self._space:
                self._grow(self._space, changes)
        self._close(changes)
        return changes

    def _push_text(self, text: str, changes: list[Change]) -> None:
        if self._open is None or self._open.kind is not BlockKind.TEXT:
            self._space += text
            if not text or text.isspace():
                return
            text = self._space
            self._begin(BlockKind.TEXT, changes)
        self._grow(text, changes)

    def _begin(self, kind: BlockKind, changes: list[Change], name: str = "", call_id: str = "") -> None:
        self._close(changes)
        self._open = OutputBlock(len(self.blocks), kind, name, call_id)
        self.blocks.append(self._open)
        changes.append(Opened(self._open))

    def _grow(self, piece: str, changes: list[Change]) -> None:
        assert self._open is not None
        self._space = ""
        if piece:
            self._open.pieces.append(piece)
            changes.append(Grown(self._open, piece))

    def _close(self, changes: list[Change]) -> None:
        if self._open is not None:
            changes.append(Closed(self._open))
        self._open = None
