"""What has to be true of all requests together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler_svc.core.scheduler import Scheduler


def check_integrity(scheduler: Scheduler) -> None:
    """Asserts all invariants of a scheduler and its workers."""
    requests, queues, level = scheduler.requests, scheduler.queues, scheduler.level
    for worker in scheduler.workers.values():
        worker.check_integrity()
        for request in worker.requests():
            assert requests.get(request.key) is request, f"{request.key} runs and is not known"
            assert request.worker_id == worker.info.worker_id
    placed = {id(r) for worker in scheduler.workers.values() for r in worker.requests()}
    waiting = {id(r) for _, queue in queues.by_model() for r in queue}
    for request in requests.values():
        assert (id(request) in placed) != (id(request) in waiting), f"{request.key} is nowhere or twice"
        assert not request.status.is_finished
    suspended = [r for _, queue in queues.by_model() for r in queue if r.suspended]
    assert len(suspended) == queues.num_suspended, "suspended requests miscounted"
    assert all(level is not None and r.base_rank > level for r in suspended)
    assert len(requests) == len(placed) + len(waiting)
