"""When requests whose drafts did not pay may try again: all in the same few steps."""

from __future__ import annotations

FIRST_GAP, LONGEST_GAP = 16, 256
"""Steps between two windows."""
OPEN_STEPS = 4
"""From the first request that tries again to the last."""


class TrialWindows:
    """A step with drafts for one request costs about as much as one with drafts for many, so requests that would try
    one after another wait for each other. The windows are twice as far apart after each trial that came to nothing."""

    def __init__(self) -> None:
        self._gap = FIRST_GAP
        self._closed_for = 0
        """Steps until a window may open."""
        self._open_for = 0
        """Steps for which the one that somebody opened stays open."""

    def pass_step(self) -> None:
        """Another step of decode rows."""
        if self._open_for:
            self._open_for -= 1
            if not self._open_for:
                self._closed_for = self._gap
        elif self._closed_for:
            self._closed_for -= 1

    @property
    def may_try(self) -> bool:
        """A request may try again in this step."""
        return not self._closed_for

    def tried(self) -> None:
        """One does."""
        self._open_for = self._open_for or OPEN_STEPS

    def failed(self) -> None:
        """Its trial came to nothing."""
        self._gap = min(2 * self._gap, LONGEST_GAP)

    def paid(self) -> None:
        """Somebody's drafts pay."""
        self._gap = FIRST_GAP
