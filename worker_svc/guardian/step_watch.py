"""Ends a worker whose step hangs (docs/design.md, U9)."""

from __future__ import annotations

from collections.abc import Callable

from worker_svc.guardian.ending import Ending, hung
from worker_svc.guardian.step_age import StepAge
from worker_svc.guardian.step_mark import StepMark


class StepWatch:
    """Looks at the step that a worker executes, and kills the worker when that is over its limit."""

    def __init__(self, mark: StepMark, kill: Callable[[], None], is_stopped: Callable[[], bool]) -> None:
        """kill: as SIGKILL. is_stopped: somebody has stopped the worker, which is no hang."""
        self._mark, self._kill = mark, kill
        self._age = StepAge(is_stopped)

    def look(self, now: float) -> Ending | None:
        """Kills the worker if its step is over the limit, and returns how it ended. To be called every LOOK_S; `now`:
        by any clock in seconds that only rises."""
        turn = self._mark.turn
        if self._age.look(turn.step_id, now) * 1e3 <= turn.limit_ms:
            return None
        if (
            self._mark.turn != turn
        ):  # it has just ended, or its limit was read with the number of the one before
            return None
        self._kill()
        return hung(turn.step_id, turn.limit_ms / 1e3)
