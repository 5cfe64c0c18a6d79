"""Requests that wait for their grammar count for the load of a worker."""

from __future__ import annotations

from collections import Counter

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.worker_info import WorkerInfo
from tests.scheduler_svc.harness import MODEL, WORKER, make_request, make_scheduler

OTHER = "other"


def attach(scheduler: Scheduler, num_slots: int = 64) -> None:
    info = WorkerInfo(OTHER, "i", "a:1", MODEL, num_slots, 256, 4, 1 << 20, 1 << 20)
    scheduler.attach_worker(info, None, 0.0)


def place_all(scheduler: Scheduler) -> Counter[str]:
    """Steps of both workers in turn; how many requests each has in the end."""
    for _ in range(40):
        for worker_id in (WORKER, OTHER):
            scheduler.schedule(worker_id, 0.0)
    return Counter(request.worker_id for request in scheduler.requests.values() if request.worker_id)


def test_grammar_requests_go_where_the_fewest_prepare() -> None:
    scheduler = make_scheduler(num_slots=64, num_blocks=256, max_inflight_steps=16)
    attach(scheduler)
    for number in range(20):
        scheduler.submit(make_request(f"r{number}", 6, has_grammar=True), 0.0)
    assert place_all(scheduler) == {WORKER: 10, OTHER: 10}


def test_requests_go_where_nothing_prepares() -> None:
    scheduler = make_scheduler(num_slots=64, num_blocks=256, max_inflight_steps=16)
    for number in range(6):
        scheduler.submit(make_request(f"g{number}", 6, has_grammar=True), 0.0)
    scheduler.schedule(WORKER, 0.0)
    attach(scheduler)
    for number in range(6):
        scheduler.submit(make_request(f"r{number}", 6), 0.0)
    assert place_all(scheduler) == {WORKER: 6, OTHER: 6}


def test_nobody_leaves_a_grammar_to_a_worker_that_prepares_no_more() -> None:
    """The other one runs less, and half of its two slots is taken."""
    scheduler = make_scheduler(num_slots=64, num_blocks=256, max_inflight_steps=16)
    attach(scheduler, num_slots=2)
    for number in range(8):
        scheduler.submit(make_request(f"r{number}", 6, has_grammar=True), 0.0)
    assert place_all(scheduler) == {WORKER: 7, OTHER: 1}
