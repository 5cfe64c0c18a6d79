"""Work in a thread that leaves the interpreter to the event loop: streams of other requests are written there."""

from __future__ import annotations

import time

WORK_S = 0.001
REST_S = 0.004


class Pace:
    """Rests now and then; a loop that computes asks it in every turn."""

    def __init__(self) -> None:
        self._since_s = time.monotonic()

    def rest(self) -> None:
        """Sleeps after a millisecond of work."""
        if time.monotonic() - self._since_s >= WORK_S:
            time.sleep(REST_S)
            self._since_s = time.monotonic()
