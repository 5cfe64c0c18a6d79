"""What is kept for a request goes with it."""

from __future__ import annotations

import numpy as np

from scheduler_svc.core.state.requests.request import RequestKey
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker_info import WorkerInfo
from scheduler_svc.core.step.decode_blocks import grant
from signalbox.protocol.enums import FinishReason
from tests.scheduler_svc.harness import MODEL, WORKER, make_request, make_scheduler, report_for, run_step


def test_the_pauses_of_requests_that_ended_are_forgotten() -> None:
    scheduler = make_scheduler(max_inflight_steps=1)
    scheduler.attach_frontend("f", [], [], 0.0)
    names = ("cancelled", "finished", "waits", "unknown")
    for name in names[:2]:
        scheduler.submit(make_request(name, 6), 0.0)
    scheduler.schedule(WORKER, 0.0)
    scheduler.submit(make_request("waits", 6), 0.0)
    for name in names:
        scheduler.set_paused(RequestKey("f", name), 1, True)
    paused = scheduler.frontends.by_instance["f"].paused
    assert paused == {("cancelled", 1), ("finished", 1), ("waits", 1)}, "the unknown one may have ended"
    scheduler.update(WORKER, report_for(scheduler, finished=((1, FinishReason.STOP, 1),)), 0.0)
    assert ("finished", 1) not in paused
    scheduler.set_paused(RequestKey("f", "finished"), 1, True)
    assert ("finished", 1) not in paused, "the pause crossed the report of the end"
    for name in ("cancelled", "waits", "unknown"):
        scheduler.cancel(RequestKey("f", name), 1)
    frontend = scheduler.frontends.by_instance["f"]
    assert not frontend.paused and not frontend.live


def test_a_victim_loses_its_grant() -> None:
    """K3: it has no blocks any more that the worker could be told of."""
    scheduler = make_scheduler(max_inflight_steps=1)
    for name in ("a", "b"):
        scheduler.submit(make_request(name, 6), 0.0)
    run_step(scheduler)
    run_step(scheduler)
    worker, step = scheduler.workers[WORKER], StepDecision(9)
    grant(worker, np.array([0, 1]), np.array([1, 1]), step)
    kept = step.grant_blocks[0]
    worker.preempt(1, step)
    assert step.grant_slots.tolist() == [0] and step.grant_blocks.tolist() == [kept]


def test_a_worker_does_not_look_at_requests_of_a_kind_that_it_does_not_serve() -> None:
    scheduler = make_scheduler(max_inflight_steps=1)
    info = WorkerInfo("other", "i", "a:1", MODEL, 16, 64, 4, 1 << 20, 1 << 20, serves_pooling=True)
    scheduler.attach_worker(info, None, 0.0)
    for number in range(3):
        scheduler.submit(make_request(f"p{number}", 3, is_pooling=True), 0.0)
    worker, other = scheduler.workers[WORKER], scheduler.workers["other"]
    assert not scheduler.has_work(worker) and scheduler.has_work(other)
    scheduler.submit(make_request("a", 3), 0.0)
    assert scheduler.has_work(worker)
    for key in list(scheduler.requests):
        scheduler.cancel(key, 1)
    assert not scheduler.has_work(worker) and not scheduler.has_work(other)
