"""Bugs planted on purpose in hand-offs between workers (docs/design.md, HO): rings that hand requests over have to find
each of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler_svc.core.moves.desk import HandoffDesk
from scheduler_svc.core.parts.handoff import step_orders
from scheduler_svc.core.parts.handoff.commit import Arrived
from scheduler_svc.core.parts.handoff.ends import HandoffEnds
from scheduler_svc.core.parts.handoff.part import handoffs_of
from scheduler_svc.core.parts.handoff.typed import Handoff
from scheduler_svc.core.placement import choice
from scheduler_svc.core.state.requests.handoff import Phase
from scheduler_svc.core.state.slots.table import SlotTable
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.block_groups import SPINE
from signalbox.protocol.enums import WorkerRole
from tests.simulation.ring.model import Model
from worker_svc.core.handoff.exports import Export, Exports, Tail
from worker_svc.core.handoff.handoffs import Handoffs
from worker_svc.core.handoff.imports import Imports
from worker_svc.core.parts.handoff import HandoffPart
from worker_svc.core.requests.request_state import SlotStatus
from worker_svc.transfer.control import source
from worker_svc.transfer.control.gate import Gate

Patch = pytest.MonkeyPatch


# -- of roles --


def decoders_take_no_prompts(patch: Patch) -> None:
    """PD2: a worker that is there to decode leaves prompts to others, though there are none."""

    def strict(role: WorkerRole, **_: Any) -> bool:
        return role is WorkerRole.DECODE

    patch.setattr(choice, "leaves_prompt", strict)


# -- of the source --


def source_goes_on_behind_the_tail(patch: Patch) -> None:
    """HO4: the tail is made, and the slot runs on."""
    freeze = Exports.freeze

    def freeze_nothing(exports: Exports, slot: int) -> None:
        freeze(exports, slot)
        export, table = exports.by_slot.get(slot), exports._table
        if export is not None and export.frozen is not None:
            table.status[slot] = export.frozen.status
            table.runs[slot] = export.frozen.runs

    patch.setattr(Exports, "freeze", freeze_nothing)


def frozen_before_its_tokens_are_there(patch: Patch) -> None:
    """PT7: nobody waits for the tokens that a slot still makes when it freezes."""
    patch.setattr(HandoffPart, "needs_commit", lambda part, orders: False)


def unread_outputs_stay_behind(patch: Patch) -> None:
    """HO5, HO11: the tail leaves out what the frontend has not acknowledged."""
    build = source.build_tail
    patch.setattr(source, "build_tail", lambda tail, num_known, unread: build(tail, num_known, []))


def last_block_stays_behind(patch: Patch) -> None:
    """HO5: the block that is not full is not sent, and the target believes that it was."""

    def readable(exports: Exports, export: Export, group: int) -> tuple[int, Any]:
        frozen, export.frozen = export.frozen, None
        try:
            return real(exports, export, group)
        finally:
            export.frozen = frozen

    real = Exports._readable
    patch.setattr(Exports, "_readable", readable)
    patch.setattr(Imports, "missing", lambda *given: "")


def blocks_are_read_before_they_are_whole(patch: Patch) -> None:
    """HO3: a block is said to be there as soon as it has its first position."""
    real = Exports._readable

    def readable(exports: Exports, export: Export, group: int) -> tuple[int, Any]:
        first, blocks = real(exports, export, group)
        if group != SPINE or export.frozen is not None:
            return first, blocks
        table = exports._table
        end = -(-int(table.num_computed[export.slot]) // table.block_size)
        return first, table.blocks[export.slot, : min(end, int(table.num_blocks[export.slot]))]

    patch.setattr(Exports, "_readable", readable)


def windows_begin_a_block_late(patch: Patch) -> None:
    """WB4: of a window the first block that is looked at is not sent, and nobody misses it."""
    real = Exports._readable

    def readable(exports: Exports, export: Export, group: int) -> tuple[int, Any]:
        first, blocks = real(exports, export, group)
        return (first, blocks) if group == SPINE or not len(blocks) else (first + 1, blocks[1:])

    patch.setattr(Exports, "_readable", readable)
    patch.setattr(Imports, "missing", lambda *given: "")


def thawed_under_the_old_leg(patch: Patch) -> None:
    """HO2: a slot that goes on at its source keeps its leg."""
    thaw = Exports.thaw
    patch.setattr(
        Exports, "thaw", lambda exports, slot, leg: thaw(exports, slot, int(exports._table.legs[slot]))
    )


def _changed_tail(patch: Patch, **changes: Any) -> None:
    real = Exports._tail

    def tail(exports: Exports, slot: int) -> Tail:
        return replace(real(exports, slot), **changes)

    patch.setattr(Exports, "_tail", tail)


def names_of_blocks_stay_behind(patch: Patch) -> None:
    """HO12: what was sealed is not."""
    _changed_tail(patch, sealed=(), chain_hash=b"")


def prompts_are_read_again(patch: Patch) -> None:
    """HO12: how far a prompt was read is forgotten."""
    _changed_tail(patch, num_read=0)


def state_of_another_version(patch: Patch) -> None:
    """HO5: the recurrent state that is sent is that of the step before."""
    read = Model.read_state

    def read_other(model: Model, slot: int, version: int, num_drafts: int) -> bytes:
        others = [other for other in model._states if other[0] == slot and other[1] != version]
        number = others[0][1] if others else version
        return read(model, slot, number, min(num_drafts, len(model._drafts.get((slot, number), ()))))

    patch.setattr(Model, "read_state", read_other)


# -- of the target --


def state_stays_behind(patch: Patch) -> None:
    """HO5: the recurrent state that comes is thrown away."""
    patch.setattr(Model, "write_state", lambda *given: None)


def imported_rows_run_alone(patch: Patch) -> None:
    """HO7: a worker without a scheduler goes on with what it has taken over, committed or not."""
    rest = Handoffs.rest

    def rest_and_go_on(handoffs: Handoffs) -> list[int]:
        slots, table = rest(handoffs), handoffs.imports._table
        for slot in [slot for slot in handoffs.imports.by_slot if slot not in slots]:
            table.status[slot] = SlotStatus.PREFILL
        return slots

    patch.setattr(Handoffs, "rest", rest_and_go_on)


def frozen_rows_run_alone(patch: Patch) -> None:
    """HO7: a worker without a scheduler goes on with what it has frozen."""
    rest = Exports.rest

    def rest_and_go_on(exports: Exports) -> None:
        rest(exports)
        for slot, export in exports.by_slot.items():
            if export.frozen is not None:
                exports._table.status[slot] = export.frozen.status

    patch.setattr(Exports, "rest", rest_and_go_on)


def gates_stay_open(patch: Patch) -> None:
    """HO8: what is read or written of a hand-off that is over goes on, whoever has the blocks by now."""
    patch.setattr(Gate, "close", lambda gate: None)


# -- of the scheduler --


def committed_when_it_is_ready(patch: Patch) -> None:
    """HO6: the word that it may be frozen is taken for the commit."""
    ready = HandoffDesk.ready

    def commit(desk: HandoffDesk, worker_id: str, slot: int, transfer: int, now: float) -> None:
        ready(desk, worker_id, slot, transfer, now)
        handoff = desk._import(worker_id, slot, transfer)
        if handoff is not None and handoff.phase is Phase.READY:
            table, at = handoff.source.table, handoff.source_slot
            arrived = Arrived(int(table.num_computed[at]), int(table.num_output[at]), b"")
            desk.commit(handoff, arrived, now)

    patch.setattr(HandoffDesk, "ready", commit)


def started_without_a_commit(patch: Patch) -> None:
    """HO6: the target runs what it has, and is not told that it counts."""
    commit = HandoffDesk.commit

    def commit_in_silence(desk: HandoffDesk, handoff: Handoff, *given: Any) -> None:
        commit(desk, handoff, *given)
        handoffs_of(handoff.target).committed.pop(handoff.target_slot)

    patch.setattr(HandoffDesk, "commit", commit_in_silence)


def grants_do_not_follow(patch: Patch) -> None:
    """HO3: the target has the blocks that it was given when it began, and no others."""
    patch.setattr(step_orders, "follow_source", lambda handoff, step: True)
    patch.setattr(step_orders, "has_enough", lambda handoff: True)
    patch.setattr(step_orders, "is_behind", lambda handoff: False)


def frozen_blocks_are_given_away(patch: Patch) -> None:
    """HO4: a frozen slot gives up its blocks."""
    freeze = SlotTable.freeze

    def freeze_and_release(table: SlotTable, slot: int) -> None:
        freeze(table, slot)
        worker: Worker | None = getattr(table, "its_worker", None)
        if worker is not None:
            worker.pool.release(table.table(slot))

    begin = step_orders._freeze

    def note_worker(worker: Worker, ends: HandoffEnds, step: Any, now: float) -> None:
        worker.table.its_worker = worker  # type: ignore[attr-defined]
        begin(worker, ends, step, now)

    patch.setattr(step_orders, "_freeze", note_worker)
    patch.setattr(SlotTable, "freeze", freeze_and_release)
