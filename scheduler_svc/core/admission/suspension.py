"""Whom safe mode pauses on one worker."""

from __future__ import annotations

from scheduler_svc.core.state.worker import Worker


def suspend(worker: Worker, level: int | None) -> None:
    """Safe mode pauses the requests of classes below `level`, and lets all others go on; None: all. The slots that
    paused ones keep leave room for a full batch, so that others are never locked out: of more requests the oldest
    go on to their end."""
    table, requests = worker.table, worker.requests()
    below = [request for request in requests if level is not None and request.entry.priority > level]
    below.sort(key=lambda request: (request.suspended, request.order), reverse=True)
    most = max(table.num_slots - worker.limits.max_num_seqs, 0)
    paused = {id(request) for request in below[:most]}
    worker.may_suspend = bool(paused)
    for request in requests:
        assert request.slot is not None
        table.set_suspended(request.slot, id(request) in paused)
