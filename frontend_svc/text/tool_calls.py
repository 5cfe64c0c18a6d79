"""Finds calls of tools in an output that arrives in pieces, and tells them piece by piece.

Two ways of writing them: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` in free text (Hermes, Qwen), and
a bare JSON array of such objects, which a schema enforces. What turns out to be no call is text.
"""

from __future__ import annotations

from frontend_svc.text.tool_call_reader import CallArguments, CallReader, CallStart, Event, Text

OPEN = "<tool_call>"
CLOSE = "</tool_call>"


class TaggedCalls:
    """Calls between tags in free text."""

    def __init__(self) -> None:
        self.num_calls = 0
        self._held = ""
        self._reader: CallReader | None = None
        self._behind_object = False
        """The closing tag is to come."""
        self._behind_call = False
        """Line breaks that come now only separate calls."""

    def push(self, text: str) -> list[Event]:
        """The events of the next piece of text."""
        events: list[Event] = []
        self._held += text
        while self._advance(events):
            pass
        return events

    def flush(self) -> list[Event]:
        """The events of what was held back, when no more text comes."""
        events = self._reader.flush() if self._reader else []
        if events or self._reader:
            # An object that never ended: its tag is part of the text again.
            return [Text(OPEN + event.text) if isinstance(event, Text) else event for event in events]
        held, self._held = self._held, ""
        return [] if self._behind_object or not held else [Text(held)]

    def _advance(self, events: list[Event]) -> bool:
        """Takes one step; whether there may be another one."""
        if self._reader is not None:
            return self._read_object(events)
        if self._behind_object:
            return self._skip_close()
        if self._behind_call:
            self._held = self._held.lstrip("\n")
            self._behind_call = not self._held
        start = self._held.find(OPEN)
        if start < 0:
            self._emit_text(len(self._held) - _overlap(self._held, OPEN), events)
            return False
        self._emit_text(start, events)
        self._held = self._held[len(OPEN) :]
        self._reader = CallReader(self.num_calls)
        return True

    def _read_object(self, events: list[Event]) -> bool:
        assert self._reader is not None
        text, self._held = self._held, ""
        made, rest = self._reader.push(text)
        is_call = any(isinstance(event, CallStart) for event in made)
        self.num_calls += is_call
        events += [Text(OPEN + event.text) if isinstance(event, Text) else event for event in made]
        if rest is None:
            return False
        # Behind text that was no call the closing tag is text too.
        self._behind_object = not any(isinstance(event, Text) for event in made)
        self._reader, self._held = None, rest
        return True

    def _skip_close(self) -> bool:
        """The closing tag and the space before it; a model that leaves it out goes on with text."""
        bare = self._held.lstrip()
        if bare.startswith(CLOSE):
            self._held, self._behind_object, self._behind_call = bare[len(CLOSE) :], False, True
            return True
        if CLOSE.startswith(bare):
            return False
        self._behind_object = False
        return True

    def _emit_text(self, length: int, events: list[Event]) -> None:
        if length:
            events.append(Text(self._held[:length]))
            self._held = self._held[length:]


class ListedCalls:
    """A JSON array of calls, as a schema enforces it."""

    def __init__(self) -> None:
        self.num_calls = 0
        self._reader: CallReader | None = None
        self._held = ""

    def push(self, text: str) -> list[Event]:
        """The events of the next piece of text."""
        events: list[Event] = []
        rest: str | None = text
        while rest:
            if self._reader is None:
                # Brackets, commas and spaces between the objects.
                start = rest.find("{")
                if start < 0:
                    break
                rest = rest[start:]
                self._reader = CallReader(self.num_calls)
            made, rest = self._reader.push(rest)
            self.num_calls += any(isinstance(event, CallStart) for event in made)
            events += made
            if rest is not None:
                self._reader = None
        return events

    def flush(self) -> list[Event]:
        """The events of what was held back, when no more text comes."""
        return self._reader.flush() if self._reader else []


class NamedCall:
    """One call of a tool that the client named: the whole output is its arguments."""

    def __init__(self, name: str) -> None:
        self.num_calls = 0
        self._name = name

    def push(self, text: str) -> list[Event]:
        """The events of the next piece of text."""
        events: list[Event] = [CallArguments(0, text)] if text else []
        if events and not self.num_calls:
            self.num_calls = 1
            events.insert(0, CallStart(0, self._name))
        return events

    def flush(self) -> list[Event]:
        """The events of what was held back: nothing, as the call takes all text."""
        return []


Calls = TaggedCalls | ListedCalls | NamedCall


def _overlap(text: str, tag: str) -> int:
    """Length of the longest end of `text` that begins `tag`."""
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:length]):
            return length
    return 0
