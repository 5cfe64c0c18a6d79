"""Who makes room for a request of a higher class: first a place in the batch, then blocks.

Inside a class, a tenant that has fewer places and has had less takes one from the tenant that has most.

Whoever is displaced keeps its blocks and waits where it stands. Only when its blocks are needed it is preempted, as in
any other shortage. A class is displaced by higher ones only, and by its own class's standing at arrival, not by what it
has risen to: nobody loses a place to somebody who just waited long.
"""

from __future__ import annotations

from collections.abc import Callable, Set

import numpy as np

from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.slots.slot_state import HELD, KEPT_PLACE, SlotState
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step.shortage import blocks_coming, certain_to_end, covers, loss


def may_displace(worker: Worker, request: Request) -> bool:
    """Somebody of a lower class than the one that `request` came with has a place."""
    return int(worker.table.active_priority.max()) > request.entry.priority


def make_place(worker: Worker, request: Request, step: StepDecision) -> None:
    """Takes a place from whoever goes last. The caller has asked `may_displace`."""
    table = worker.table
    active = _active(worker)
    worst = active[table.effective_priority[active] == table.effective_priority[active].max()].tolist()
    slot = min(worst, key=lambda other: _cost(worker, other))
    assert worker.request(slot).entry.effective_priority > request.entry.priority
    if table.paused[slot] & HELD:  # it lacks blocks itself
        worker.preempt(slot, step)
    else:
        worker.displace(slot, step)


def excessive_row(
    worker: Worker, request: Request, service_received: Callable[[Request], float], busy: Set[int]
) -> int | None:
    """A decode row of the tenant that has most places of the class, when it has had more than the tenant of `request`
    and has more places for its weight: that much it owes. None: there is no such row outside of `busy`."""
    table = worker.table
    active = _active(worker)
    active = active[table.effective_priority[active] == request.entry.effective_priority]
    account = request.entry.account
    if account is None or not len(active):
        return None
    places = np.bincount(table.account[active], minlength=account.index + 1)
    most = int(places.argmax())
    rows = active[(table.account[active] == most) & (table.state[active] == SlotState.DECODE)]
    slots = [slot for slot in rows[table.paused[rows] == 0].tolist() if slot not in busy]
    if most == account.index or not slots:
        return None
    other = worker.request(slots[0])
    assert other.entry.account is not None
    has_more = int(places[most]) * account.tenant.limits.weight > (
        (int(places[account.index]) + 1) * other.entry.account.tenant.limits.weight
    )
    if not has_more or service_received(other) < service_received(request):
        return None
    victim: int = min(slots, key=lambda slot: _cost(worker, slot))
    return victim


def make_room(worker: Worker, request: Request, lacking: list[int], step: StepDecision) -> bool:
    """Preempts whoever has to make room, so that `lacking` more blocks of each group are available: those that
    rest, those that were displaced and go after `request`, then those of lower classes. False, and nothing
    changed, when they have not that many."""
    table = worker.table
    idle, later, lower = _room_makers(worker, request)
    if not covers(blocks_coming(worker, np.array([*idle, *later, *lower], np.int64)), lacking):
        return False
    later.sort(key=lambda slot: (-int(table.effective_priority[slot]), loss(worker, slot)))
    last = sorted(lower, key=lambda slot: (-int(table.effective_priority[slot]), loss(worker, slot)))
    return _take_blocks(worker, [*idle, *later, *last], lacking, step)


def blocks_of_others(worker: Worker, request: Request, has_classes: bool) -> list[int]:
    """Blocks of each group that others would have to give up if `request` lacked them."""
    idle, later, lower = _room_makers(worker, request) if has_classes else (_idle(worker), [], set())
    return blocks_coming(worker, np.array([*idle, *later, *lower], np.int64))


def _room_makers(worker: Worker, request: Request) -> tuple[list[int], list[int], set[int]]:
    """Slots that rest, those that were displaced and go after `request`, and those of lower classes."""
    idle = _idle(worker)
    later = [slot for slot in worker.table.displaced if worker.request(slot).order > request.order]
    later = [slot for slot in later if slot not in idle]
    active = _active(worker)
    lower = set(active[worker.table.effective_priority[active] > request.entry.priority].tolist())
    if lower:
        lower -= set(certain_to_end(worker).tolist())
    return idle, later, lower


def make_idle_room(worker: Worker, lacking: list[int], step: StepDecision) -> bool:
    """Makes room as `make_room` does, by those only that rest. False, and nothing changed, when they have not that
    many."""
    idle = _idle(worker)
    if not idle or not covers(blocks_coming(worker, np.array(idle, np.int64)), lacking):
        return False
    return _take_blocks(worker, idle, lacking, step)


def _idle(worker: Worker) -> list[int]:
    """Slots that gave up their place because they rest, whoever loses least first."""
    idle = [slot for slot in worker.table.displaced if worker.request(slot).rests]
    return sorted(idle, key=lambda slot: loss(worker, slot))


def _take_blocks(worker: Worker, slots: list[int], lacking: list[int], step: StepDecision) -> bool:
    """Preempts `slots` in order, until so many more blocks of each group are available. Returns whether they are."""
    pools = worker.pools
    wanted = [pool.num_available + count for pool, count in zip(pools, lacking, strict=True)]
    for slot in slots:
        if covers([pool.num_available for pool in pools], wanted):
            break
        worker.preempt(slot, step)
    return covers([pool.num_available for pool in pools], wanted)


def _active(worker: Worker) -> np.ndarray:  # type: ignore[type-arg]
    """Slots that have a place in the batch that can be taken from them."""
    return np.flatnonzero(worker.table.active_priority > KEPT_PLACE)


def _cost(worker: Worker, slot: int) -> tuple[int, ...]:
    """What it costs to displace `slot`, to be compared: whoever was displaced least often, then the youngest."""
    request = worker.request(slot)
    return (request.history.num_displacements, *(-part for part in request.order))
