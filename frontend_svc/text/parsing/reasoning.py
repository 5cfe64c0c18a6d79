"""What a model writes for itself, in front of its answer."""

from __future__ import annotations

from dataclasses import dataclass

from frontend_svc.text.parsing.call_reader import MakeReader, Openers
from frontend_svc.text.parsing.context import Context
from frontend_svc.text.parsing.held_calls import HeldCalls
from frontend_svc.text.parsing.pieces import END, End, Tag
from frontend_svc.text.parsing.quotation import Quotation
from frontend_svc.text.parsing.tape import Reading


@dataclass(frozen=True)
class ReasoningTags:
    """The marks around what a model writes for itself."""

    begin: str
    end: str
    label: str = ""
    """Left out when it stands first between them."""
    is_implied: bool = False
    """The model may write the end alone: an output begins between them unless its prompt has closed them."""


class ReasoningReader:
    """Reads up to the closing tag. What may be calls is held back: with that tag behind them they were thoughts, and a
    model that ends its output behind them instead wants to call."""

    def __init__(
        self, context: Context, tags: ReasoningTags, make_reader: MakeReader | None, *, is_bound: bool = False
    ) -> None:
        """Without a reader there are no calls. is_bound: by a grammar, to which the end is one, quoted or not."""
        self._is_bound = is_bound
        self._context, self._tags, self._make_reader = context, tags, make_reader
        self._openers = Openers(make_reader(context) if make_reader else None)
        self._quotation = Quotation()
        self._last = ""
        """The last character read; empty: there was none."""
        self._held: HeldCalls | None = None

    def read(self) -> Reading[None]:
        """Behind the opening tag."""
        yield from self._skip_label()
        while True:
            item = yield from self._context.tape.run()
            if isinstance(item, End):
                self._end_output()
                break
            if isinstance(item, Tag):
                if self._is_end(item):
                    break
                if item.text == self._tags.begin and not self._last:
                    continue
            self._take(item)
        self._release()
        self._context.emit.end_reasoning()

    def _is_end(self, tag: Tag) -> bool:
        is_certain = tag.is_token or self._is_bound
        return tag.text == self._tags.end and (is_certain or not self._quotation.is_opened)

    def _take(self, item: str | Tag) -> None:
        text = item.text if isinstance(item, Tag) else item
        if self._held is not None and not self._held.push(item):
            self._release()
        if self._held is None and isinstance(item, Tag):
            self._hold(item)
        if self._held is None:
            self._context.emit.reasoning(text)
        self._quotation.feed(text)
        self._last = text[-1]

    def _hold(self, tag: Tag) -> None:
        """Begins to, if that begins a call."""
        if self._make_reader is None or not self._openers.begins_call(tag, self._quotation):
            return
        held = HeldCalls(self._context, self._make_reader, self._last)
        if held.push(tag):
            self._held = held

    def _end_output(self) -> None:
        if self._held is None or not self._context.tape.is_whole:
            return
        self._held.push(END)
        if calls := self._held.complete():
            self._held = None
            self._context.emit.tell_calls(calls)

    def _release(self) -> None:
        """What was held is reasoning."""
        if self._held is not None:
            self._context.emit.reasoning(self._held.written)
            self._held = None

    def _skip_label(self) -> Reading[None]:
        """Leaves the label out."""
        tape, label = self._context.tape, self._tags.label
        seen = ""
        while len(seen) < len(label):
            item = yield from tape.next()
            if item != label[len(seen)]:
                tape.back(item)
                if seen and item is not END:
                    self._take(seen)
                return
            seen += label[len(seen)]
