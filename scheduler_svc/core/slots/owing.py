"""Those that a worker owes a place: they were displaced or preempted, or their grammar is ready. They start, or go on,
before new requests of their class."""

from __future__ import annotations

import numpy as np

from scheduler_svc.core.slots.worker import Worker


def owing_slots(worker: Worker, aging_s: float, now: float) -> list[int]:
    """Slots that start, or go on, when there is room, in order. They age by one class per `aging_s` seconds. Those
    that rest are none of them, and do not age."""
    waiting = (*worker.preempted, *worker.prepared, *worker.displaced)
    members = [slot for slot in waiting if not worker.request(slot).rests]
    if not members:
        return members
    known, until, order = worker.owing_order
    if members == known and now < until:
        return order
    until = np.inf
    for slot in members:
        request = worker.request(slot)
        if request.waits_since is None:
            request.waits_since, request.waits_as = now, request.rank
        if aging_s:
            levels = int((now - request.waits_since) / aging_s)
            request.rank = worker.table.rank[slot] = request.waits_as - levels
            until = min(until, request.waits_since + (levels + 1) * aging_s)
    order = sorted(members, key=lambda slot: worker.request(slot).order)
    worker.owing_order = (members, until, order)
    return order


def is_owing(worker: Worker) -> bool:
    """A slot that does not run wants to: it goes before whoever is not placed yet."""
    waiting = (*worker.preempted, *worker.prepared, *worker.displaced)
    return any(not worker.request(slot).rests for slot in waiting)
