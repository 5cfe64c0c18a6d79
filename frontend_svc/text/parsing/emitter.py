"""Collects what a parser tells, and knows what of it may still be cut off."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from frontend_svc.text.parsing.events import CallArguments, CallStart, Event, Reasoning, Text, join_events
from frontend_svc.text.parsing.quotation import Quotation
from frontend_svc.text.stop_strings import StopStrings


def make_call_id() -> str:
    """As OpenAI's look."""
    return f"call_{secrets.token_hex(12)}"


class Emitter:
    """Space at the end of text is held back: before a call, and between calls, it only separates."""

    def __init__(self, make_id: Callable[[], str] = make_call_id, max_calls: int = 0) -> None:
        """max_calls: with a call beyond these the output is complete; 0: there may be any number."""
        self.is_complete = False
        """One more call than there may be has begun: it and what follows are not told."""
        self._max_calls = max_calls
        self.num_calls = 0
        self.last = ""
        """The character that text ended with last; empty: there was none, or a call stands between."""
        self.quotation = Quotation()
        """Marks of quotation in the text so far."""
        self._make_id = make_id
        self._events: list[Event] = []
        self._space: list[str] = []
        self._reasoning_space: list[str] = []
        self.has_text = False
        """Something but space was told since the last call."""
        self._has_reasoning = False
        self._has_arguments = False
        """The newest call has some."""
        self._stops: StopStrings | None = None

    def aside(self, last: str) -> Emitter:
        """One that goes on behind `last` and tells nobody: for what may turn out to be something else."""
        emitter = Emitter(self._make_id)
        emitter.num_calls, emitter.last = self.num_calls, last
        return emitter

    def watch(self, stops: Sequence[str]) -> None:
        """Space that completes one of these is not held back: the output ends there."""
        self._stops = StopStrings(tuple(stops))

    def take(self) -> list[Event]:
        """All events since the last time."""
        events, self._events = self._events, []
        return join_events(events) if len(events) > 1 else events

    def text(self, text: str) -> None:
        """Text for the user. Space in front of all text is left out."""
        if not text or self.is_complete:
            return
        self.quotation.feed(text)
        self.last = text[-1]
        if not self.has_text and not self._space:
            text = text.lstrip("\r\n")
        kept = text.rstrip()
        if kept:
            self.has_text = True
            self._events.append(Text("".join([*self._space, kept])))
            self._space = []
        if len(kept) < len(text):
            self._space.append(text[len(kept) :])
        if self._stops is not None and text and self._stops.push(text)[1] is not None:
            self._stops, self.has_text = None, True
            self.end_text()

    def end_text(self) -> None:
        """Text ends here without a call behind it."""
        if self._space and self.has_text and not self.is_complete:
            self._events.append(Text("".join(self._space)))
        self._space = []

    def reasoning(self, text: str) -> None:
        """What the model wrote for itself. Line breaks around it are left out."""
        if self.is_complete:
            return
        if not self._has_reasoning:
            text = text.lstrip("\r\n")
        kept = text.rstrip("\r\n")
        if kept:
            self._has_reasoning = True
            self._events.append(Reasoning("".join([*self._reasoning_space, kept])))
            self._reasoning_space = []
        if len(kept) < len(text):
            self._reasoning_space.append(text[len(kept) :])

    def end_reasoning(self) -> None:
        """A later part of it begins on a new line."""
        self._reasoning_space = ["\n"] if self._has_reasoning else []

    def start(self, name: str, call_id: str = "") -> None:
        """A call begins; an empty id: one is made."""
        if self.num_calls == self._max_calls > 0:
            self.is_complete = True
        if self.is_complete:
            return
        self._space, self.has_text, self.last = [], False, ""
        self.quotation.restart()
        if self._stops is not None:
            self._stops.flush()
        self._has_arguments = False
        self._events.append(CallStart(self.num_calls, name, call_id or self._make_id()))
        self.num_calls += 1

    def arguments(self, text: str) -> None:
        """More of the newest call's arguments."""
        if text and not self.is_complete:
            self._has_arguments = True
            self._events.append(CallArguments(self.num_calls - 1, text))

    def tell_calls(self, calls: Sequence[Event]) -> None:
        """What an emitter aside was told: starts and arguments."""
        for event in calls:
            if isinstance(event, CallStart):
                self.start(event.name, event.call_id)
            elif isinstance(event, CallArguments):
                self.arguments(event.text)

    def end_call(self) -> None:
        """The newest call, if any, was closed, not cut off: one that has no arguments by now takes none, which clients
        read as JSON."""
        if self.num_calls and not self._has_arguments:
            self.arguments("{}")
