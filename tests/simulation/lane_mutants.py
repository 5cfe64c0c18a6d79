"""Bugs planted in what keeps lanes apart (mutants.py): the simulation has to find each of them."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler_svc.core.parts.lanes import part
from scheduler_svc.core.state.slots.table import SlotTable
from scheduler_svc.core.state.steps.step import StepDecision
from signalbox.protocol.parts import lanes
from signalbox.protocol.parts.lanes import LaneOrders
from worker_svc.core import worker_core
from worker_svc.core.requests.request_state import RequestTable
from worker_svc.core.step import StepDelta, StepReport
from worker_svc.core.steps_in_flight import StepsInFlight
from worker_svc.core.worker_core import WorkerCore
from worker_svc.links import delta

Patch = pytest.MonkeyPatch


def row_stays_in_its_old_lane(patch: Patch) -> None:
    """LA5: a row that goes to another lane runs in both."""

    def change(table: SlotTable, slot: int, lane: int) -> None:
        table.lane[slot] = lane
        table._set_row(slot, True)

    patch.setattr(SlotTable, "change_lane", change)


def worker_forgets_lane_changes(patch: Patch) -> None:
    """LA5: what the worker runs of a lane is not what the scheduler counts."""
    apply = WorkerCore.apply

    def apply_without(core: WorkerCore, step: StepDelta) -> object:
        step.orders.pop(lanes.LaneOrders, None)
        return apply(core, step)

    patch.setattr(WorkerCore, "apply", apply_without)


def token_goes_to_the_wrong_lane(patch: Patch) -> None:
    """LA1: the first token of a request comes in one lane, and the next are made in another."""
    admit = WorkerCore._admit_chunks

    def admit_wrongly(core: WorkerCore, step: StepDelta, report: StepReport) -> object:
        before = list(core._settling)
        admitted = admit(core, step, report)
        for slot in core._settling[len(before) :]:
            core.table.lane[slot] = (step.step_id + 1) % core.table.num_lanes
        return admitted

    patch.setattr(WorkerCore, "_admit_chunks", admit_wrongly)


def chunk_overtakes(patch: Patch) -> None:
    """LA2: a step goes ahead of one that waits for its turn."""
    patch.setattr(StepsInFlight, "is_full", property(lambda flights: len(flights) >= flights._most))


def nothing_is_waited_for(patch: Patch) -> None:
    """LA2: rows and blocks are taken from steps on their way."""
    patch.setattr(worker_core, "needs_commit_of_lane", lambda table, step, settling: False)


def rows_leave_lanes_out_of_turn(patch: Patch) -> None:
    """LA5: a row of another lane goes to the one whose turn it is, a step behind its last."""

    def even_out(table: SlotTable, step: StepDecision) -> None:
        fullest = int(np.argmax([len(lane.slots) for lane in table.lanes]))
        if len(table.lanes[fullest].slots) > len(table.turn.slots) + 1:
            slot = int(table.lanes[fullest].slots[-1])
            table.change_lane(slot, table.turn_number)
            step.order(LaneOrders).changes.append((slot, table.turn_number))

    patch.setattr(part, "even_out", even_out)


def snapshots_forget_lanes(patch: Patch) -> None:
    """LA6: a new scheduler takes all rows for those of the first lane."""
    build = delta._build_slot

    def build_without(core: WorkerCore, slot: int) -> object:
        built = build(core, slot)
        built.lane = 0
        return built

    patch.setattr(delta, "_build_slot", build_without)


def empty_turns_are_not_sent(patch: Patch) -> None:
    """LA4: a lane without rows keeps the others from their turns."""
    is_empty = StepDecision.is_empty.fget
    assert is_empty is not None

    def is_empty_alone(step: StepDecision) -> bool:
        step.passes = False
        return bool(is_empty(step))

    patch.setattr(StepDecision, "is_empty", property(is_empty_alone))


def all_rows_run_in_each_turn(patch: Patch) -> None:
    """LA1: the worker knows no lanes."""
    patch.setattr(RequestTable, "rows_of", lambda table, step_id: np.flatnonzero(table.runs & ~table.paused))
