"""Parses one output: pieces in, events out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence

from frontend_svc.text.parsing.call_reader import MakeReader, Openers
from frontend_svc.text.parsing.context import Context
from frontend_svc.text.parsing.events import Event
from frontend_svc.text.parsing.pieces import END, End, Item, Piece, Tag
from frontend_svc.text.parsing.reasoning import ReasoningReader, ReasoningTags
from frontend_svc.text.parsing.tag_scanner import TagScanner
from frontend_svc.text.parsing.tape import Reading


class OutputParser(ABC):
    """Feeds a reader with the pieces of an output, whatever steps they come in."""

    def __init__(self, context: Context, text_tags: Collection[str]) -> None:
        """text_tags: marks that no single token spells, to be found in text."""
        self.in_reasoning = False
        """What comes next is, as far as is known, reasoning."""
        self._context = context
        self._scanner = TagScanner(sorted(text_tags)) if text_tags else None
        self._reading = self.read()
        next(self._reading)
        self._ended = False

    @property
    def num_calls(self) -> int:
        """Calls that have begun."""
        return self._context.emit.num_calls

    @property
    def is_complete(self) -> bool:
        """Nothing more will be told."""
        return self._context.emit.is_complete

    @abstractmethod
    def read(self) -> Reading[None]:
        """Reads the whole output."""

    def watch(self, stops: Sequence[str]) -> None:
        """Text that completes one of these is told at once, also where it would be held back."""
        self._context.emit.watch(stops)

    def push(self, pieces: Iterable[Piece]) -> list[Event]:
        """What became certain with these pieces."""
        for piece in pieces:
            if self._scanner is None:
                self._send(piece)
                continue
            if isinstance(piece, Tag):
                found: list[Piece] = [*self._scanner.flush(), piece]
            else:
                found = self._scanner.push(piece)
            for part in found:
                self._send(part)
        return self._context.emit.take()

    def flush(self, *, is_whole: bool = False) -> list[Event]:
        """What was held back, when no more pieces come. is_whole: the model ended it itself; nothing was cut off."""
        if not self._ended:
            self._ended = True
            for part in self._scanner.flush() if self._scanner else ():
                self._send(part)
            self._context.tape.is_whole = is_whole
            self._send(END)
            if is_whole:
                self._context.emit.end_call()
        return self._context.emit.take()

    def _send(self, item: Item) -> None:
        try:
            self._reading.send(item)
        except StopIteration:
            assert isinstance(item, End), "readers read to the end"


class TaggedParser(OutputParser):
    """Reasoning between two tags, in front; then text, and calls in it."""

    def __init__(
        self,
        context: Context,
        text_tags: Collection[str],
        reasoning: ReasoningTags | None,
        make_reader: MakeReader | None,
        *,
        starts_in_reasoning: bool = False,
        is_bound: bool = False,
        answers_plainly: bool = False,
    ) -> None:
        """starts_in_reasoning: the prompt has opened it. Without a reader there are no calls. is_bound: by a grammar,
        to which the end of reasoning is one, quoted or not. answers_plainly: where there is text, all that follows is
        text, too."""
        self._reasoning, self._make_reader = reasoning, make_reader
        self._reader = make_reader(context) if make_reader else None
        self._openers = Openers(self._reader)
        self._starts_in_reasoning = starts_in_reasoning
        self._is_bound, self._answers_plainly = is_bound, answers_plainly
        super().__init__(context, text_tags)
        self.in_reasoning = starts_in_reasoning

    def read(self) -> Reading[None]:
        """Reads reasoning, text and calls up to the end."""
        tape, emit = self._context.tape, self._context.emit
        if self._starts_in_reasoning:
            yield from self._read_reasoning()
        fresh = True
        """Nothing but space has come since the output, or since reasoning or a call ended."""
        while True:
            item = yield from (tape.next() if fresh else tape.run())
            if isinstance(item, End):
                emit.end_text()
                return
            if self._answers_plainly and emit.has_text:
                fresh = False
                emit.text(item.text if isinstance(item, Tag) else item)
            elif isinstance(item, Tag):
                fresh = yield from self._read_tag(item, fresh)
            elif fresh and self._begins_call(item):
                assert self._reader is not None
                yield from self._reader.read(item)
            else:
                emit.text(item)
                fresh = fresh and item.isspace()

    def _begins_call(self, character: str) -> bool:
        reader = self._reader
        return reader is not None and character in reader.initials and not self.num_calls

    def _read_tag(self, tag: Tag, fresh: bool) -> Reading[bool]:
        """Whether what follows is fresh again."""
        emit, reasoning = self._context.emit, self._reasoning
        if fresh and reasoning is not None and tag.text == reasoning.begin:
            yield from self._read_reasoning()
            return True
        if fresh and reasoning is not None and tag.text == reasoning.end:
            return True
        if self._openers.begins_call(tag, emit.quotation):
            assert self._reader is not None
            yield from self._reader.read(tag)
            return not emit.last
        emit.text(tag.text)
        return False

    def _read_reasoning(self) -> Reading[None]:
        assert self._reasoning is not None
        self.in_reasoning = True
        reader = ReasoningReader(self._context, self._reasoning, self._make_reader, is_bound=self._is_bound)
        yield from reader.read()
        self.in_reasoning = False
