"""A draining worker ends what it has and gets nothing more."""

from __future__ import annotations

import pytest

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.requests.notices import Rejected
from scheduler_svc.core.state.worker_info import WorkerInfo
from scheduler_svc.step_loop import StepLoop
from signalbox.v1 import from_worker_pb2
from tests.scheduler_svc.harness import (
    MODEL,
    WORKER,
    make_request,
    make_scheduler,
    report_for,
    run_step,
    tokens_by_name,
)

OTHER = "other"


def attach(scheduler: Scheduler, worker_id: str, instance: str = "i") -> None:
    info = WorkerInfo(worker_id, instance, "a:1", MODEL, 16, 64, 4, 1 << 20, 1 << 20)
    scheduler.attach_worker(info, None, 0.0)


def refused(scheduler: Scheduler) -> dict[str, str]:
    """Messages by request id."""
    notices = scheduler.drain_notices()
    return {notice.key.request_id: notice.message for notice in notices if isinstance(notice, Rejected)}


def test_what_runs_goes_on_and_what_comes_is_refused() -> None:
    scheduler = make_scheduler(max_inflight_steps=1)
    scheduler.submit(make_request("old", 3, max_tokens=4), 0.0)
    run_step(scheduler)
    assert scheduler.drain_worker(WORKER, True, 0.0) == 1
    scheduler.submit(make_request("new", 3), 0.0)
    assert refused(scheduler) == {"new": f"the workers of {MODEL!r} are being drained"}
    step = scheduler.schedule(WORKER, 0.0)
    assert step is not None and tokens_by_name(scheduler, step) == {"old": 1}
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    scheduler.check_integrity()


def test_what_waits_is_refused_when_nobody_is_left_to_take_it() -> None:
    scheduler = make_scheduler()
    scheduler.submit(make_request("waiting", 3), 0.0)
    assert scheduler.drain_worker(WORKER, True, 0.0) == 0
    assert list(refused(scheduler)) == ["waiting"]
    assert scheduler.num_waiting == 0


def test_another_worker_takes_what_waits() -> None:
    scheduler = make_scheduler(max_inflight_steps=1)
    attach(scheduler, OTHER)
    scheduler.drain_worker(WORKER, True, 0.0)
    scheduler.submit(make_request("a", 3), 0.0)
    assert scheduler.schedule(WORKER, 0.0) is None
    step = scheduler.schedule(OTHER, 0.0)
    assert step is not None and [request.key.request_id for request in step.placed] == ["a"]


def test_a_request_does_not_wait_for_a_prefix_on_a_draining_worker() -> None:
    scheduler = make_scheduler(max_inflight_steps=1, affinity_min_tokens=1)
    hashes = bytes(range(32))
    scheduler.submit(make_request("first", 9, hashes=hashes), 0.0)
    run_step(scheduler)
    attach(scheduler, OTHER)
    scheduler.drain_worker(WORKER, True, 0.0)
    scheduler.submit(make_request("second", 9, hashes=hashes), 0.0)
    step = scheduler.schedule(OTHER, 0.0)
    assert step is not None and [request.key.request_id for request in step.placed] == ["second"]


def test_resuming_takes_requests_again() -> None:
    scheduler = make_scheduler()
    scheduler.drain_worker(WORKER, True, 0.0)
    scheduler.drain_worker(WORKER, False, 0.0)
    scheduler.submit(make_request("a", 3), 0.0)
    assert refused(scheduler) == {}
    assert scheduler.schedule(WORKER, 0.0) is not None


@pytest.mark.parametrize(("instance", "drains"), [("i", True), ("another process", False)])
def test_a_new_process_takes_requests_and_a_new_stream_of_the_old_one_does_not(
    instance: str, drains: bool
) -> None:
    scheduler = make_scheduler()
    scheduler.drain_worker(WORKER, True, 0.0)
    scheduler.detach_worker(WORKER, 0.0)
    attach(scheduler, WORKER, instance)
    assert scheduler.workers[WORKER].draining is drains


def test_a_worker_that_is_told_to_stop_asks_for_nothing_new() -> None:
    scheduler = make_scheduler(max_inflight_steps=1)
    loop = StepLoop(scheduler, clock=lambda: 0.0, call_at=lambda when, action: None)
    event = from_worker_pb2.WorkerEvent(draining=from_worker_pb2.Draining())
    loop.on_worker(WORKER, from_worker_pb2.AttachWorkerRequest(events=[event]))
    scheduler.submit(make_request("new", 3), 0.0)
    assert refused(scheduler) == {"new": f"the workers of {MODEL!r} are being drained"}


def test_nothing_waits_for_ever_when_only_draining_workers_are_left() -> None:
    scheduler = make_scheduler(worker_grace_s=1.0)
    attach(scheduler, OTHER)
    scheduler.drain_worker(WORKER, True, 0.0)
    scheduler.detach_worker(OTHER, 0.0)
    scheduler.submit(make_request("a", 3), 0.0)
    scheduler.tick(0.5)
    assert refused(scheduler) == {}
    scheduler.tick(2.0)
    assert list(refused(scheduler)) == ["a"]


def test_a_worker_that_is_not_there() -> None:
    with pytest.raises(KeyError):
        make_scheduler().drain_worker("nobody", True, 0.0)


def test_nothing_waits_for_ever_for_a_kind_that_only_a_gone_worker_served() -> None:
    scheduler = make_scheduler(worker_grace_s=1.0)
    info = WorkerInfo(OTHER, "i", "a:1", MODEL, 16, 64, 4, 1 << 20, 1 << 20, serves_pooling=True)
    scheduler.attach_worker(info, None, 0.0)
    scheduler.submit(make_request("vector", 3, is_pooling=True), 0.0)
    scheduler.submit(make_request("text", 3), 0.0)
    scheduler.detach_worker(OTHER, 0.0)
    scheduler.tick(2.0)
    assert refused(scheduler) == {"vector": f"no worker of {MODEL!r} serves pooling requests"}
    scheduler.check_integrity()
