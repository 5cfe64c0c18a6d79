"""Just-in-time steps: when to send the next one, so that the worker does not idle and late arrivals still make it.

A step that is sent early waits in the worker's queue, and a request that arrives meanwhile has to wait for the step
after it. A step that is sent late leaves the worker idle. The worker reports how long each step waited in its queue
(`queued_us`), which is the error signal of a small controller; no clocks are compared between machines.
"""

from __future__ import annotations

from collections import deque

WINDOW = 16
"""Steps whose durations are remembered."""
TARGET_QUEUED_S = 0.0015
"""How long a step should wait in the worker's queue: covers jitter, costs arrivals next to nothing."""
LATE_QUEUED_S = 0.0003
"""A step that waited less than this may have come too late."""


class Pacer:
    """Decides how long after a report the next step is held back, for one worker."""

    def __init__(self) -> None:
        self._durations: deque[float] = deque(maxlen=WINDOW)
        self._lead_s = 0.005
        """How long before the running step's end the next one has to leave here."""
        self.typical_s = 0.0
        """The mean of the last steps; 0 before WINDOW steps were seen."""

    @property
    def longest_s(self) -> float:
        """The longest of the last steps."""
        return max(self._durations, default=0.0)

    def observe(self, *, duration_s: float, queued_s: float, was_ahead: bool) -> None:
        """Takes a report's timings. `was_ahead`: the step was sent while another ran, so its wait tells something."""
        self._durations.append(duration_s)
        if len(self._durations) == WINDOW:
            self.typical_s = sum(self._durations) / WINDOW
        if not was_ahead:
            return
        if queued_s < LATE_QUEUED_S:
            # Not above a step's duration, which holds nothing back already: it would take long to come down from there.
            self._lead_s = min(self._lead_s * 1.3 + TARGET_QUEUED_S, max(self._durations))
        else:
            self._lead_s = max(self._lead_s - 0.1 * (queued_s - TARGET_QUEUED_S), 0.0)

    def hold_s(self) -> float:
        """Seconds that the next step may wait, counted from the report that made room for it. The running step is
        assumed to be as fast as the fastest lately: too early costs less than too late."""
        if len(self._durations) < WINDOW:
            return 0.0
        return max(min(self._durations) - self._lead_s, 0.0)
