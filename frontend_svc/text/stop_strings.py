"""Looks for stop strings in text that arrives in pieces, whatever the pieces are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Found:
    """A stop string that is complete."""

    stop: str
    num_tokens: int = 0
    """Tokens up to and including the one that completed it; counted by whoever feeds tokens."""


class StopStrings:
    """Finds the stop string that is complete first; of several that are complete at once, the longest.

    Text that may be the beginning of a stop string is held back until that is decided.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._longest = max(map(len, stops))
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """Takes the next piece. Returns the text that is certain, and the stop string that is now complete.

        The stop string and what follows it are cut from the text; nothing may be pushed after that.
        """
        text = self._held + text
        found = self._first(text)
        if found is not None:
            start, stop = found
            self._held = ""
            return text[:start], stop
        certain = len(text) - self._possible(text)
        self._held = text[certain:]
        return text[:certain], None

    def flush(self) -> str:
        """What was held back, when no more text comes."""
        held, self._held = self._held, ""
        return held

    def _first(self, text: str) -> tuple[int, str] | None:
        """Start and name of the stop string that ends first in `text`."""
        best: tuple[int, int, str] | None = None
        for stop in self._stops:
            start = text.find(stop)
            if start >= 0 and (best is None or (start + len(stop), start) < best[:2]):
                best = (start + len(stop), start, stop)
        return (best[1], best[2]) if best else None

    def _possible(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop string."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            tail = text[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
