"""Applies what a delta changes to the worker's table."""

from __future__ import annotations

from collections.abc import Callable

from worker_svc.core.batch import StateCopy
from worker_svc.core.handoff.handoffs import Handoffs
from worker_svc.core.parts.part import Parts, Phase
from worker_svc.core.requests.checkpoints import Checkpoints
from worker_svc.core.requests.request_state import RequestTable, SlotStatus
from worker_svc.core.requests.state_versions import StateVersions
from worker_svc.core.step import StepDelta


def apply_changes(
    table: RequestTable,
    delta: StepDelta,
    states: StateVersions,
    checkpoints: Checkpoints,
    handoffs: Handoffs,
    parts: Parts,
    clear: Callable[[int], None],
) -> list[StateCopy]:
    """In the order of K3: finished, which `clear` forgets, preempted, handed over, grants, resumed, new; then pauses,
    limits and what else parts order. Returns the copies with which slots go on from checkpoints."""
    state_copies: list[StateCopy] = []
    for slot in delta.finished_slots:
        clear(slot)
    for slot in delta.preempted_slots:
        handoffs.preempt(slot)
        table.preempt(slot)
    if delta.orders:
        parts.apply(Phase.COPY, delta)
    for slot, block in zip(delta.grant_slots.tolist(), delta.grant_blocks.tolist(), strict=True):
        table.grant(slot, block)
    for group, slots, blocks in delta.group_grants:
        table.grant_group(group, slots, blocks)
    for start in (*delta.resumed, *delta.started):
        if table.status[start.slot] in (SlotStatus.PREPARING, SlotStatus.PREEMPTED):
            table.start(start.slot, start.blocks, start.start, start.groups)
            states.reset(start.slot)
            state_copies += checkpoints.restore(start)
    table.paused[delta.paused_slots] = True
    table.paused[delta.unpaused_slots] = False
    for slot, limit in delta.draft_limits:
        table.max_drafts[slot] = limit
    if delta.orders:
        parts.apply(Phase.ORDER, delta)
    return state_copies
