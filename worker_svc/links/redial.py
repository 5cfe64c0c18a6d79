"""When a worker dials again, by what ended its last attempt."""

from __future__ import annotations

import random

from signalbox.errors import DuplicateWorkerError, InvalidRequestError, SignalboxError

FIRST_S, LONGEST_S = 0.1, 2.0
"""First and longest wait in seconds after a link that broke, or was never there."""
FIRST_REFUSED_S, LONGEST_REFUSED_S = 0.25, 30.0
"""First and longest wait in seconds after a hello that was refused, and will be again if nothing changes."""
TRUSTED_S = 30.0
"""A link that lasts so long is no part of a row of bad ones."""
TAKEN_ID_S = (1.0, 5.0)
"""Range of the wait in seconds while another process lives under our id."""
MOST_REFUSALS = 3
"""Refusals of one snapshot before what it tells of is given up."""


class Redial:
    """Waits longer and longer. No two workers do it in step."""

    def __init__(self) -> None:
        self._num_failures = self._num_refusals = self._num_broken = 0

    def succeed(self) -> None:
        """Begins anew with the shortest wait: a hello was taken."""
        self._num_failures = self._num_refusals = 0

    def fail(self, error: SignalboxError | None) -> float:
        """Seconds until the next attempt. None: the link just ended."""
        if isinstance(error, DuplicateWorkerError):
            return random.uniform(*TAKEN_ID_S)
        if isinstance(error, InvalidRequestError):
            self._num_refusals += 1
            return _backoff(FIRST_REFUSED_S, LONGEST_REFUSED_S, self._num_refusals)
        self._num_failures += 1
        return _backoff(FIRST_S, LONGEST_S, max(self._num_failures, self._num_broken))

    def distrust(self) -> None:
        """A link that was up is left because of what came by it."""
        self._num_broken += 1

    def endure(self) -> None:
        """A link has been up for TRUSTED_S: what was wrong with those before it is forgotten."""
        self._num_broken = 0

    @property
    def has_tried_enough(self) -> bool:
        """Hellos were refused again and again for what stands in them: with the next, it is MOST_REFUSALS times."""
        return self._num_refusals + 1 >= MOST_REFUSALS


def _backoff(first_s: float, longest_s: float, count: int) -> float:
    seconds = min(first_s * 2.0 ** min(count - 1, 30), longest_s)
    return seconds * random.uniform(0.5, 1.0)
