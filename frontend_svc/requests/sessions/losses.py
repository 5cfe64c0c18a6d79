"""How often a request has lost its worker, and when that is too often (docs/liveness.md, E11)."""

from __future__ import annotations

from signalbox.errors import InternalError, SignalboxError, UnavailableError
from signalbox.protocol.enums import LossCause

MAX_WITHOUT_TOKEN = 64
"""Losses of any cause without one new token between them: whatever that is, another attempt is no help."""


class Losses:
    """The attempts that one request has lost."""

    def __init__(self) -> None:
        self.num_losses = 0
        """Attempts lost, for whatever cause."""
        self.num_crashes = 0
        """Attempts lost since the last new token by steps that crashed or hung, which the request may have caused."""
        self._num_without_token = 0

    def on_token(self) -> None:
        """A new token: the attempt has outlived what killed the ones before it."""
        self.num_crashes = self._num_without_token = 0

    def add(self, cause: LossCause) -> None:
        """Counts a lost attempt."""
        self.num_losses += 1
        self.num_crashes += cause is LossCause.CRASH
        self._num_without_token += 1

    def refuse(self, num_forgiven: int, reason: str) -> SignalboxError | None:
        """Why there is no further attempt; None: there may be one. `num_forgiven`: crashes without a token between."""
        if self.num_crashes > num_forgiven:
            times = (
                "its worker" if self.num_crashes == 1 else f"{self.num_crashes} workers, one after the other,"
            )
            return InternalError(
                f"the request was ended: {times} crashed or hung while computing it ({reason})"
            )
        if self._num_without_token >= MAX_WITHOUT_TOKEN:
            return UnavailableError(
                f"the request was lost {self._num_without_token} times without a new token: {reason}",
                passes=False,
            )
        return None
