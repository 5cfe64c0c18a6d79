"""What arrives at the worker's step engine, in the order of one inbox."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field

from signalbox.v1 import scheduler_pb2
from worker_svc import delta
from worker_svc.core.step import StepDelta
from worker_svc.grammar.preparation import Prepared

Snapshot = Future[scheduler_pb2.WorkerSnapshot | None]
"""Somebody waits for the state after all that arrived before; None: nothing has ever run here."""


@dataclass
class ArrivedStep:
    """A step and when it came; times are of the engine's clock, in seconds."""

    message: scheduler_pb2.SchedulerOutput
    at: float
    looked_at: float = 0.0
    """When the engine last looked whether it may be taken: its own time begins then."""
    _delta: StepDelta | None = field(default=None, repr=False)

    @property
    def delta(self) -> StepDelta:
        """The step, unpacked once."""
        if self._delta is None:
            self._delta = delta.parse_step(self.message)
        return self._delta


@dataclass(frozen=True)
class CopiesFailed:
    """Copies beside the steps went wrong."""

    message: str


class Announce:
    """The scheduler has been greeted: it is told once more what became of grammars."""


class Done:
    """A step in flight is done; it may have been collected meanwhile."""


Item = scheduler_pb2.NewRequestData | ArrivedStep | Prepared | CopiesFailed | Announce | Done | Snapshot
