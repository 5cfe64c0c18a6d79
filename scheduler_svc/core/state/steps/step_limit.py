"""How long a step may take before it counts as hung (docs/design.md, U6)."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from scheduler_svc.core.state.steps.pace import Work, seconds_of
from scheduler_svc.core.state.steps.step import StepRecord
from signalbox.protocol.step_limits import STEP_TIMEOUT_S

HANG_RATIO = 4.0
"""So many times as long as a step should take: hung."""
NEW_RATIO = 20.0
"""`HANG_RATIO` of a process that has reported few steps, by its predecessor's speed: the first ones take longer."""


@dataclass
class StepLimit:
    """The limits of the steps of one worker process, in seconds."""

    least_s: float = 0.0
    """`step_hang_ms`: no step hangs before."""
    most_s: float = STEP_TIMEOUT_S
    """`step_timeout_s` of the worker: no step may take longer."""
    predecessor: Work | None = None
    """What the process before it had done when it ended; None: there was none of the same kind."""
    decode_s: float = STEP_TIMEOUT_S
    """The limit of a step that computes no prompt and has at most `num_rows` decode rows."""
    num_rows: int = sys.maxsize
    _known: Work | None = None
    _factor: float = 0.0
    """Times what `_known` says: the limit."""
    _num_read: float = 0.0
    """Positions that the `num_rows` read."""

    def look(self, known: Work | None, ratio: float | None, num_rows: int, num_read: float) -> None:
        """Takes what the worker has done and in which time, a few times a second, and how many times as long recent
        steps took (None: it is not known); with the decode rows that it has and the positions that they read."""
        self._known, times = known, HANG_RATIO
        if known is None:
            self._known, times = self.predecessor, NEW_RATIO
        self._factor = times * max(ratio or 1.0, 1.0)
        self.num_rows, self._num_read = (num_rows, num_read) if self._known else (sys.maxsize, 0.0)
        self.decode_s = self._limit(Work(1, num_rows, num_read, 0.0))

    def of(self, step: StepRecord) -> float:
        """The limit of a step."""
        num_tokens = step.num_decode_rows + step.num_prefill_tokens
        before = max((chunk.start for chunk in step.chunks), default=0)
        num_read = float(step.num_prefill_tokens * before)
        if step.num_decode_rows:
            num_read += self._num_read * max(step.num_decode_rows / max(self.num_rows, 1), 1.0)
        return self._limit(Work(1, num_tokens, num_read, 0.0))

    def _limit(self, work: Work) -> float:
        if self._known is None:
            return self.most_s
        return min(max(self.least_s, self._factor * seconds_of(work, self._known)), self.most_s)
