"""The part of workers whose decode rows take turns in lanes."""

from __future__ import annotations

from scheduler_svc.core.parts.lanes.even_lanes import even_out
from scheduler_svc.core.state.part import Part, Phase, Resource
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker


class Lanes(Part):
    """Moves rows from lane to lane, so that all have as much to do (LA5)."""

    name = "lanes"
    rank = 10
    phases = (Phase.PREEMPT,)
    reads = writes = frozenset({Resource.TABLE})

    def __init__(self, worker: Worker) -> None:
        self._table = worker.table

    def act(self, phase: Phase, step: StepDecision, now: float) -> None:
        """As `Part.act`."""
        even_out(self._table, step)
