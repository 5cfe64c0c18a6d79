"""Calls within reasoning: what they are is known only when the reasoning goes on, or the output ends."""

from __future__ import annotations

from frontend_svc.text.parsing.call_reader import MakeReader
from frontend_svc.text.parsing.context import Context
from frontend_svc.text.parsing.events import CallArguments, CallStart, Event, Text, join_events
from frontend_svc.text.parsing.json_reader import parse_json
from frontend_svc.text.parsing.pieces import END, Item, Tag
from frontend_svc.text.parsing.tape import Reading


class HeldCalls:
    """Reads them as they come, apart from what the output tells."""

    def __init__(self, outer: Context, make_reader: MakeReader, last: str) -> None:
        """last: the character in front of them."""
        self._context = Context(outer.tools, outer.emit.aside(last))
        self._reader = make_reader(self._context)
        self._written: list[str] = []
        self._events: list[Event] = []
        self._reading = self._read()
        next(self._reading)

    @property
    def written(self) -> str:
        """All of it, as it was written."""
        return "".join(self._written)

    def push(self, item: Item) -> bool:
        """Takes the next item, the opening tag first. False: it does not belong to a call, and nothing is held."""
        try:
            self._reading.send(item)
        except StopIteration:
            if item is not END:
                return False
        told = self._context.emit.take()
        self._events += told
        if any(isinstance(event, Text) for event in told):
            return False
        if isinstance(item, str | Tag):
            self._written.append(item if isinstance(item, str) else item.text)
        return True

    def complete(self) -> list[Event]:
        """Behind the end: the calls; empty unless all of them are complete, with an object of arguments each."""
        events = join_events(self._events)
        starts, arguments = events[::2], events[1::2]
        whole = (
            len(starts) == len(arguments)
            and all(isinstance(event, CallStart) for event in starts)
            and all(isinstance(event, CallArguments) and _is_object(event.text) for event in arguments)
        )
        return events if whole else []

    def _read(self) -> Reading[None]:
        """Calls with nothing but space between them, up to anything else."""
        while True:
            item = yield from self._context.tape.behind_space()
            if not (isinstance(item, Tag) and item.text in self._reader.openers):
                return
            yield from self._reader.read(item)


def _is_object(text: str) -> bool:
    try:
        return isinstance(parse_json(text), dict)
    except ValueError:
        return False
