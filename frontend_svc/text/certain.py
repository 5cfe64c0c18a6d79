"""What became certain of an output with some of its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from frontend_svc.text.parsing.events import Event
from frontend_svc.text.stop_strings import Found


@dataclass(slots=True)
class Certain:
    """Text for the user; and, of an output that is parsed, all that it means in its order."""

    text: str = ""
    found: Found | None = None
    """The stop string that is complete; None: none is."""
    events: Sequence[Event] = ()
    """Empty where nothing is parsed: then `text` is all."""
    num_reasoning_tokens: int = 0
    reasoning_places: Sequence[int] = ()
    """Where among these tokens reasoning is, and the marks around it."""
