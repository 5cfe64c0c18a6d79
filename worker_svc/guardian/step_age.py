"""For how long a step has run, by looks at it (docs/design.md, U8)."""

from __future__ import annotations

from collections.abc import Callable

LOOK_S = 0.25
"""Seconds between two looks. Each counts for twice that at most: who looks later has stood still himself."""


class StepAge:
    """Counts how long the same step has been running."""

    def __init__(self, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """is_stopped: the process of the step is not allowed to run; then a look counts for nothing."""
        self._is_stopped = is_stopped
        self._step_id = 0
        self._looked_at = self._seconds = 0.0

    def look(self, step_id: int, now: float) -> float:
        """Seconds for which the step that runs has been seen running. `step_id`: its number; 0: none runs. `now`: by
        any clock in seconds that only rises."""
        passed, self._looked_at = min(now - self._looked_at, 2 * LOOK_S), now
        if step_id != self._step_id or not step_id:
            self._step_id, self._seconds = step_id, 0.0
        elif not self._is_stopped():
            self._seconds += passed
        return self._seconds
