"""Slots that wait to start or to go on rise by a class for each time of waiting, like those that wait for a worker."""

from __future__ import annotations

from scheduler_svc.core.recovery.snapshot import WorkerSnapshot
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.enums import SlotStatus
from tests.scheduler_svc.harness import make_info, make_request, make_slot

AGING_S = 60.0
LOW, HIGH = 0, 1


def make_worker() -> Worker:
    """Two preempted requests, of class 2 and of class 1, that have waited since second 0 and second 50."""
    scheduler = Scheduler(SchedulerConfig(policy="priority", aging_s=AGING_S), 1, 0.0)
    slots = [
        make_slot(slot=slot, request=make_request(name, 30, priority=priority), status=SlotStatus.PREEMPTED)
        for slot, name, priority in ((LOW, "low", 2), (HIGH, "high", 1))
    ]
    worker = scheduler.attach_worker(make_info(), WorkerSnapshot(1, 5, slots), 0.0)
    worker.request(HIGH).entry.waits_since = 50.0
    return worker


def test_whoever_has_waited_for_long_goes_before_a_higher_class_that_has_not() -> None:
    """Q2: the order is kept while it holds: nobody is asked twice, and a rise is not missed."""
    worker = make_worker()
    assert worker.table.resume_queue(AGING_S, 50.0) == [HIGH, LOW]
    assert worker.table.resume_queue(AGING_S, 59.9) == [HIGH, LOW]
    assert worker.table.resume_queue(AGING_S, 60.0) == [LOW, HIGH], "both are of class 1, and low came first"
    assert (worker.request(LOW).entry.effective_priority, int(worker.table.effective_priority[LOW])) == (1, 1)
    assert worker.table.resume_queue(AGING_S, 110.0) == [HIGH, LOW], "high has risen to class 0"
    assert worker.table.resume_queue(AGING_S, 120.0) == [LOW, HIGH]
    assert [worker.request(slot).entry.effective_priority for slot in (LOW, HIGH)] == [0, 0]


def test_without_aging_classes_stay_as_they_are() -> None:
    worker = make_worker()
    assert worker.table.resume_queue(0.0, 1e6) == [HIGH, LOW]
    assert [worker.request(slot).entry.effective_priority for slot in (LOW, HIGH)] == [2, 1]
