"""What the next step of a worker says of hand-offs, taken into its table: what ends ahead of all else, then what
begins."""

from __future__ import annotations

from scheduler_svc.core.parts.handoff.blocks import follow_source, has_enough, is_behind, start_import
from scheduler_svc.core.parts.handoff.ends import HandoffEnds
from scheduler_svc.core.parts.handoff.orders import HandoffOrders
from scheduler_svc.core.state.requests.handoff import Phase
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker

NO_BLOCKS = "no_blocks"


def has_handoff_work(ends: HandoffEnds) -> bool:
    """The next step would say something of a hand-off."""
    told = ends.arriving or ends.begun or ends.kept or ends.thawed or ends.committed
    return bool(
        told
        or any(handoff.is_heard and has_enough(handoff) for handoff in ends.freezing)
        or any(is_behind(handoff) for handoff in ends.imports.values())
    )


def go_on(worker: Worker, ends: HandoffEnds, step: StepDecision) -> None:
    """Frozen slots that go on do so from this step on, and are not preempted in it: a worker preempts before that."""
    if not (ends.thawed or ends.kept):
        return
    orders = step.order(HandoffOrders)
    step.spared_slots |= ends.thawed.keys()
    orders.thawed, orders.kept_slots = list(ends.thawed.items()), ends.kept
    for slot in ends.thawed:
        worker.table.thaw(slot)
    ends.note(ends.thawed, step.step_id)
    ends.thawed, ends.kept = {}, []


def hand_over(worker: Worker, ends: HandoffEnds, step: StepDecision, now: float, *, is_enabled: bool) -> None:
    """Begins, freezes and commits. `is_enabled`: cached blocks are reused."""
    _begin(ends, step)
    _freeze(worker, ends, step, now)
    _follow(ends, step)
    _take_over(ends, step, is_enabled=is_enabled)


def _begin(ends: HandoffEnds, step: StepDecision) -> None:
    if ends.begun:
        orders = step.order(HandoffOrders)
        orders.exports, ends.begun = ends.begun, []
        for handoff in orders.exports:
            handoff.is_source_told = True


def _freeze(worker: Worker, ends: HandoffEnds, step: StepDecision, now: float) -> None:
    """One that a suspect's step has paused is brought back by this one, and frozen with the next: a delta says where a
    slot ends up."""
    named = {*step.paused_slots, *step.unpaused_slots}
    for handoff in list(ends.freezing):
        slot = handoff.source_slot
        is_known = handoff.is_source_told and handoff.is_heard
        if slot in named or not is_known or not has_enough(handoff):
            continue
        ends.freezing.remove(handoff)
        handoff.phase, handoff.frozen_at = Phase.FROZEN, now
        worker.table.freeze(slot)
        step.order(HandoffOrders).frozen_slots.append(slot)


def _follow(ends: HandoffEnds, step: StepDecision) -> None:
    for handoff in ends.imports.values():
        grows = handoff.has_blocks and handoff.is_target_told and handoff.phase is not Phase.FROZEN
        if grows and not follow_source(handoff, step):
            ends.broken.append((handoff, NO_BLOCKS))


def _take_over(ends: HandoffEnds, step: StepDecision, *, is_enabled: bool) -> None:
    if ends.committed:
        ends.note(ends.committed, step.step_id)
        step.order(HandoffOrders).committed, ends.committed = list(ends.committed.items()), {}
    for handoff in ends.arriving:
        start = start_import(handoff, step, is_enabled=is_enabled)
        if start is None:
            ends.broken.append((handoff, NO_BLOCKS))
            continue
        handoff.is_target_told = True
        orders = step.order(HandoffOrders)
        orders.arriving.append(handoff)
        orders.import_starts.append(start)
    ends.arriving = []
