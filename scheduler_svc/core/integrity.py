"""What must never be otherwise: asserted by tests, the simulation, and the idle loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from scheduler_svc.core.queue.queues import Queues
from scheduler_svc.core.state.requests.request import Request, RequestKey
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.state.worker_check import check_state, state_pieces


def check_workers(workers: Mapping[str, Worker], requests: Mapping[RequestKey, Request]) -> None:
    """Asserts the invariants of all but those whose snapshot is still on its way."""
    for worker in workers.values():
        if not worker.is_arriving:
            check_worker(worker, requests)


def check_worker(worker: Worker, requests: Mapping[RequestKey, Request]) -> None:
    """Asserts the invariants of a worker, and that what runs there is among `requests`."""
    check_state(worker)
    _check_known(worker, requests)


def worker_pieces(worker: Worker, requests: Mapping[RequestKey, Request]) -> Iterator[None]:
    """As `check_worker`, in the pieces of `state_pieces`."""
    _check_known(worker, requests)
    yield from state_pieces(worker)


def _check_known(worker: Worker, requests: Mapping[RequestKey, Request]) -> None:
    for request in worker.requests():
        assert requests.get(request.key) is request, f"{request.key} runs and is not known"
        assert request.worker_id == worker.info.worker_id


def check_requests(
    requests: Mapping[RequestKey, Request],
    workers: Mapping[str, Worker],
    queues: Queues,
    suspects: Set[RequestKey],
    level: int | None,
) -> None:
    """Asserts that each request is in one place, and that those that wait, may have crashed a worker, or are suspended
    (above `level`; None: nobody is) are counted. What an arriving worker has is its own, wherever its slot was."""
    arriving = {worker_id for worker_id, worker in workers.items() if worker.is_arriving}
    placed = {id(r) for worker in workers.values() for r in worker.requests()}
    placed |= {id(r) for r in requests.values() if r.worker_id in arriving}
    waiting = {id(r) for _, queue in queues.by_model() for r in queue}
    for request in requests.values():
        assert (id(request) in placed) != (id(request) in waiting), f"{request.key} is nowhere or twice"
        assert not request.status.is_finished
    assert suspects == {key for key, request in requests.items() if request.num_crashes}, (
        "suspects miscounted"
    )
    suspended = [r for _, queue in queues.by_model() for r in queue if r.suspended]
    assert len(suspended) == queues.num_suspended, "suspended requests miscounted"
    assert all(level is not None and r.entry.priority > level for r in suspended)
    assert len(requests) == len(placed) + len(waiting)
    num_bytes = sum(r.num_bytes for _, queue in queues.by_model() for r in queue)
    assert num_bytes == queues.num_waiting_bytes, "bytes that wait are miscounted"
