"""The events of an output, whether it is parsed or not."""

from __future__ import annotations

from collections.abc import Sequence

from frontend_svc.requests.events import Delta
from frontend_svc.text.parsing.events import Event, Reasoning, Text


def events_of(delta: Delta, *, with_reasoning: bool = True) -> Sequence[Event]:
    """What a delta tells. An output that is not parsed is text."""
    if not delta.events:
        return [Text(delta.text)] if delta.text else []
    if with_reasoning:
        return delta.events
    return [event for event in delta.events if not isinstance(event, Reasoning)]
