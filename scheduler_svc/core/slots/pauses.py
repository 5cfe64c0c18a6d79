"""Slots that are paused and keep their blocks: for want of a block, for somebody with more right to their place, for a
client that reads too slowly, or by safe mode. A slot runs while none of these holds.

Each change keeps the table's flags, the decode rows and the worker's lists in step with each other, and says in the
delta where the slot ends up. Who is paused is decided elsewhere.
"""

from __future__ import annotations

from scheduler_svc.core.slots.request_table import DISPLACED, HELD, NO_PLACE, RESTING, SlotState, rest_of
from scheduler_svc.core.slots.worker import Worker
from scheduler_svc.core.step.step import StepDecision

# -- blocks are short --


def hold(worker: Worker, slot: int, step: StepDecision) -> None:
    """Leaves a decode row out until there is a block for it."""
    if not worker.table.paused[slot] & HELD:
        worker.table.bound[slot] -= worker.table.advance[slot]
        worker.table.paused[slot] |= HELD
        worker.table.set_row(slot, False)
        worker.held.append(slot)
        _toggle(slot, step.paused_slots, step.unpaused_slots)


def unhold(worker: Worker, slot: int, step: StepDecision) -> None:
    """Lets a held slot run again, from this step on."""
    worker.held.remove(slot)
    worker.table.paused[slot] &= ~HELD
    if not worker.table.paused[slot]:
        worker.table.set_row(slot, True)
        worker.table.bound[slot] += worker.table.advance[slot]
        _toggle(slot, step.unpaused_slots, step.paused_slots)


# -- others have the place --


def displace(worker: Worker, slot: int, step: StepDecision) -> None:
    """Pauses a running slot for somebody of a higher class, from this step on. It keeps its blocks."""
    if not worker.table.paused[slot]:
        worker.table.bound[slot] -= worker.table.advance[slot]
        worker.table.set_row(slot, False)
        _toggle(slot, step.paused_slots, step.unpaused_slots)
    worker.table.paused[slot] |= DISPLACED
    worker.table.place_rank[slot] = NO_PLACE
    worker.displaced.append(slot)
    if slot in worker.prefilling:
        worker.prefilling.remove(slot)
    worker.request(slot).num_displacements += 1
    worker.stats.num_displacements += 1


def return_place(worker: Worker, slot: int, step: StepDecision) -> None:
    """Gives a displaced slot its place back, from this step on. A decode row has the blocks for it."""
    table = worker.table
    worker.displaced.remove(slot)
    table.paused[slot] &= ~DISPLACED
    table.rank[slot] = table.place_rank[slot] = worker.request(slot).rank
    worker.request(slot).waits_since = None
    if table.state[slot] == SlotState.PREFILL and table.num_sent[slot] < table.target[slot]:
        worker.insert_prefilling(slot)
    if not table.paused[slot]:
        if table.state[slot] == SlotState.DECODE:
            table.set_row(slot, True)
            table.bound[slot] += table.advance[slot]
        _toggle(slot, step.unpaused_slots, step.paused_slots)


# -- a suspect runs alone --


def set_aside(worker: Worker, step: StepDecision, suspect: int | None) -> None:
    """Pauses all rows for one step, in which only the suspect runs. Our table goes on as if the step did not count:
    nothing of it changes until they are brought back with the step behind it."""
    table = worker.table
    settling = [slot for slot in worker.settling if slot != suspect and not table.paused[slot]]
    worker.aside = step.aside_slots = [*table.decode_slots.tolist(), *settling]
    for slot in worker.aside:
        _toggle(slot, step.paused_slots, step.unpaused_slots)


def bring_back(worker: Worker, step: StepDecision) -> None:
    """Lets those go on that were set aside. Whoever has ended meanwhile needs no word."""
    table = worker.table
    for slot in worker.aside:
        if table.state[slot] == SlotState.DECODE or slot in worker.settling:
            step.unpaused_slots.append(slot)
    worker.aside = []


# -- rest --


def set_client_paused(worker: Worker, slot: int, paused: bool) -> None:
    """The client reads too slowly, or goes on."""
    request = worker.request(slot)
    if request.client_paused == paused:
        return
    request.client_paused = paused
    _note_rest(worker, slot)


def suspend(worker: Worker, level: int | None) -> None:
    """Safe mode pauses the requests of classes below `level`, and lets all others go on; None: all. The slots that
    paused ones keep leave room for a full batch, so that others are never locked out: of more requests the oldest
    go on to their end."""
    requests = worker.requests()
    below = [request for request in requests if level is not None and request.base_rank > level]
    below.sort(key=lambda request: (request.suspended, request.order), reverse=True)
    most = max(worker.table.num_slots - worker.limits.max_num_seqs, 0)
    paused = {id(request) for request in below[:most]}
    worker.may_suspend = bool(paused)
    for request in requests:
        suspended = id(request) in paused
        if request.suspended != suspended:
            assert request.slot is not None
            request.suspended = suspended
            _note_rest(worker, request.slot)


def _note_rest(worker: Worker, slot: int) -> None:
    """The next delta says whether the slot rests, unless the last one did."""
    request = worker.request(slot)
    request.waits_since = None
    if slot in worker.toggled:
        worker.toggled.remove(slot)
    runs = worker.table.state[slot] in (SlotState.PREFILL, SlotState.DECODE)
    if runs and worker.table.paused[slot] & RESTING != rest_of(request):
        worker.toggled.append(slot)


def apply_rest(worker: Worker, slot: int, step: StepDecision) -> None:
    """Carries the begin or the end of a rest into the delta. Whoever rests gives up its place, and gets it back
    like whoever was displaced. A held slot is paused already."""
    table, before = worker.table, worker.table.paused[slot]
    rest = rest_of(worker.request(slot))
    if not rest:
        table.paused[slot] = before & ~RESTING
        return
    table.paused[slot] = before & ~(HELD | RESTING) | rest | DISPLACED
    if not before:
        _toggle(slot, step.paused_slots, step.unpaused_slots)
        table.set_row(slot, False)
    if before & HELD:
        worker.held.remove(slot)
    if not before & DISPLACED:
        worker.displaced.append(slot)
        table.place_rank[slot] = NO_PLACE
    if slot in worker.prefilling:
        worker.prefilling.remove(slot)


def _toggle(slot: int, wanted: list[int], opposite: list[int]) -> None:
    """Names `slot` in a delta's list, or takes it out of the opposite one: a delta says where a slot ends up."""
    if slot in opposite:
        opposite.remove(slot)
    else:
        wanted.append(slot)
