"""Collects what a parser tells, and knows what of it may still be cut off."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from frontend_svc.text.parsing.events import CallArguments, CallStart, Event, Reasoning, Text, join_events


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
        self.in_fence = False
        """Text has opened a block of code with three backticks and not closed it."""
        self.in_code = False
        """Text has opened code with one backtick and neither closed it nor ended the paragraph."""
        self._make_id = make_id
        self._events: list[Event] = []
        self._space = ""
        self._reasoning_space = ""
        self._has_text = False
        self._has_reasoning = False
        self._num_backticks = 0

    def take(self) -> list[Event]:
        """All events since the last time."""
        events, self._events = self._events, []
        return join_events(events) if len(events) > 1 else events

    def text(self, text: str) -> None:
        """Text for the user. Space in front of all text is left out."""
        if not text or self.is_complete:
            return
        if "`" in text or self._num_backticks or self.in_code:
            self._count_backticks(text)
        self.last = text[-1]
        whole = self._space + text
        if not self._has_text:
            whole = whole.lstrip("\r\n")
        kept = whole.rstrip()
        self._space = whole[len(kept) :]
        if kept:
            self._has_text = True
            self._events.append(Text(kept))

    def end_text(self) -> None:
        """Text ends here without a call behind it."""
        if self._space and self._has_text and not self.is_complete:
            self._events.append(Text(self._space))
        self._space = ""

    def reasoning(self, text: str) -> None:
        """What the model wrote for itself. Line breaks around it are left out."""
        if self.is_complete:
            return
        whole = self._reasoning_space + text
        if not self._has_reasoning:
            whole = whole.lstrip("\r\n")
        kept = whole.rstrip("\r\n")
        self._reasoning_space = whole[len(kept) :]
        if kept:
            self._has_reasoning = True
            self._events.append(Reasoning(kept))

    def end_reasoning(self) -> None:
        """A later part of it begins on a new line."""
        self._reasoning_space = "\n" if self._has_reasoning else ""

    def start(self, name: str, call_id: str = "") -> None:
        """A call begins; an empty id: one is made."""
        if self.num_calls == self._max_calls > 0:
            self.is_complete = True
        if self.is_complete:
            return
        self._space, self._has_text, self.last = "", False, ""
        self.in_code = False
        self._events.append(CallStart(self.num_calls, name, call_id or self._make_id()))
        self.num_calls += 1

    def arguments(self, text: str) -> None:
        """More of the newest call's arguments."""
        if text and not self.is_complete:
            self._events.append(CallArguments(self.num_calls - 1, text))

    def _count_backticks(self, text: str) -> None:
        last = self.last
        for character in text:
            if character == "`":
                self._num_backticks += 1
                if self._num_backticks == 3:
                    self.in_fence = not self.in_fence
            else:
                if self._num_backticks == 1:
                    self.in_code = not self.in_code
                self._num_backticks = 0
                if character == last == "\n":
                    self.in_code = False
            last = character
