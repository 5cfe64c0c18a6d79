"""What a parser tells of an output, in the order in which it was written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """Text that is for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text that the model wrote for itself."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call begins."""

    index: int
    """0 for the first call of the output, and so on."""
    name: str
    call_id: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next piece of the arguments of a call, which are JSON when put together."""

    index: int
    text: str


Event = Text | Reasoning | CallStart | CallArguments


def join_events(events: Iterable[Event]) -> list[Event]:
    """The events with neighbours of one kind made one; empty ones are left out."""
    joined: list[Event] = []
    run: list[str] = []

    def close() -> None:
        if len(run) > 1:
            joined[-1] = _with_text(joined[-1], "".join(run))
        run.clear()

    for event in events:
        if isinstance(event, CallStart):
            close()
            joined.append(event)
        elif event.text:
            if run and _goes_on(joined[-1], event):
                run.append(event.text)
                continue
            close()
            joined.append(event)
            run.append(event.text)
    close()
    return joined


def _goes_on(last: Event, event: Event) -> bool:
    if type(last) is not type(event):
        return False
    return not isinstance(last, CallArguments) or last.index == getattr(event, "index", None)


def _with_text(event: Event, text: str) -> Event:
    match event:
        case Text():
            return Text(text)
        case Reasoning():
            return Reasoning(text)
        case CallArguments(index):
            return CallArguments(index, text)
        case CallStart():
            raise AssertionError("a start has no text")
