"""Lanes: decode rows take turns in steps, and each lane should have as much to do (LA5)."""

from __future__ import annotations

from types import MappingProxyType

from scheduler_svc.core.state.part import Claim, Part, Phase, Resource
from scheduler_svc.core.state.slots.table import SlotTable
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.parts.lanes import LaneOrders


def even_out(table: SlotTable, step: StepDecision) -> None:
    """Rows of the lane whose turn it is go to those that have fewest: they are left out of `step`, and run next in a
    turn of the other lane, with no step of theirs in between."""
    counts = [len(lane.slots) for lane in table.lanes]
    number = table.turn_number
    if counts[number] - min(counts) <= 1:
        return
    movable = table.turn.slots.tolist()
    while counts[number] - min(counts) > 1:
        lane = counts.index(min(counts))
        slot = movable.pop()
        table.change_lane(slot, lane)
        step.order(LaneOrders).changes.append((slot, lane))
        counts[number] -= 1
        counts[lane] += 1


class Lanes(Part):
    """Moves rows from lane to lane, so that all have as much to do (LA5)."""

    name = "lanes"
    rank = 10
    acts = MappingProxyType({Phase.PREEMPT: Claim(writes=frozenset({Resource.TABLE}))})

    def __init__(self, worker: Worker) -> None:
        self._table = worker.table

    def act(self, phase: Phase, step: StepDecision, now: float) -> None:
        """As `Part.act`."""
        even_out(self._table, step)
