"""Threads whose start fails where the system has no memory for them."""

from __future__ import annotations

import threading

BEGIN_S = 5.0
"""Time of this process in which a new thread has begun, or never will."""
STEP_S = 0.1


class Thread(threading.Thread):
    """A thread whose `start` raises RuntimeError when the new thread ends ahead of its first line.

    Python tells nobody of that: a thread that has no memory for its first frame ends with a line on stderr, and
    `threading.Thread.start` waits for ever for its word (CPython, issue 140746).
    """

    def start(self) -> None:
        """Raises RuntimeError: no thread is to be had, or it has no memory."""
        self._started = _Begun()  # what CPython's `start` waits for
        super().start()


class _Begun(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        """Without `timeout`, raises RuntimeError when it is not set in time. A process that is stopped meanwhile is
        given that time again, up to one step."""
        if timeout is not None:
            return super().wait(timeout)
        for _ in range(round(BEGIN_S / STEP_S)):
            if super().wait(STEP_S):
                return True
        raise RuntimeError("a new thread has ended before it began: no memory")
