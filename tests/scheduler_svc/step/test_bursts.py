"""Steps that only decode are sent several at once, and nothing that arrives waits for them: K11, K12."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.requests.request import RequestStatus
from scheduler_svc.core.state.steps.pacing import WINDOW
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.step.bursts import MOST_STEPS
from scheduler_svc.core.step.shortage import certain_to_end
from tests.scheduler_svc.harness import WORKER, make_request, make_scheduler, report_for

STEP_S = 0.005


def report(scheduler: Scheduler, seconds: float = STEP_S, counts: int | None = None) -> None:
    """The oldest step ends. `counts`: of each decode row, if not 1."""
    told = report_for(scheduler)
    told.duration_us = int(seconds * 1e6)
    if counts is not None:
        told.decode_counts = np.full(told.num_decode_rows, counts, np.uint8)
    scheduler.update(WORKER, told, 0.0)


def send(scheduler: Scheduler) -> list[StepDecision]:
    """All steps that can be sent now."""
    steps = []
    while (step := scheduler.schedule(WORKER, 0.0)) is not None:
        steps.append(step)
    return steps


def decoding(num_requests: int = 1, **settings: object) -> Scheduler:
    """A scheduler that has seen enough steps to know how long they take; one is in flight."""
    scheduler = make_scheduler(**({"just_in_time_steps": False, "decode_burst_ms": 30} | settings))  # type: ignore[arg-type]
    for number in range(num_requests):
        scheduler.submit(make_request(f"r{number}", 5), 0.0)
    for _ in range(WINDOW):
        send(scheduler)
        report(scheduler)
    while len(scheduler.workers[WORKER].records) > 1:
        report(scheduler)
    return scheduler


def test_as_many_steps_are_sent_as_take_the_time_of_a_burst_and_the_next_when_one_is_left() -> None:
    """K11."""
    scheduler = decoding()
    steps = send(scheduler)
    assert len(steps) == 6 and all(step.may_be_skipped for step in steps), "30 ms of steps of 5 ms"
    for _ in range(5):
        report(scheduler)
        assert send(scheduler) == []
    report(scheduler)
    assert len(send(scheduler)) == 6
    scheduler.check_integrity()


@pytest.mark.parametrize(
    ("settings", "most"),
    [({"decode_burst_ms": 0}, 1), ({"max_inflight_steps": 1}, 1), ({"decode_burst_ms": 1e6}, MOST_STEPS)],
)
def test_a_burst_has_bounds(settings: dict[str, object], most: int) -> None:
    scheduler = decoding(**settings)
    assert len(send(scheduler)) == most


def test_no_step_follows_the_last_token_of_all() -> None:
    """K11."""
    scheduler = decoding(num_requests=2)
    table = scheduler.workers[WORKER].table
    table.limit[:2] = table.bound[:2] + np.array([2, 4])
    assert len(send(scheduler)) == 4
    assert list(table.bound[:2] - table.limit[:2]) == [2, 0]


def test_what_arrives_is_sent_behind_a_burst_at_once() -> None:
    """K12."""
    scheduler = decoding()
    send(scheduler)
    scheduler.submit(make_request("late", 5), 0.0)
    (start,) = send(scheduler)
    assert [request.key.request_id for request in start.placed] == ["late"] and not start.may_be_skipped
    worker = scheduler.workers[WORKER]
    length = int(worker.table.num_output[0])
    report(scheduler)
    for _ in range(6):
        report(scheduler, 0.0, counts=0)
    assert worker.table.num_output[0] == length + 1 and len(worker.records) == 1
    assert worker.table.bound[0] == 5 + length + 2, "the step of the start is the only one in flight"
    report(scheduler)
    assert list(worker.table.num_output[:2]) == [length + 2, 1]
    assert worker.pacer.typical_s == pytest.approx(STEP_S), "skipped steps took no time"
    scheduler.check_integrity()


def test_a_request_that_waits_lets_no_burst_begin() -> None:
    scheduler = decoding(num_requests=2, max_num_seqs=2)
    scheduler.submit(make_request("waits", 5), 0.0)
    assert len(send(scheduler)) == 1


def test_a_burst_takes_nobody_s_blocks() -> None:
    """A row near the end of its block is granted what it needs as always; where the pool has none to spare, steps are
    sent one by one."""
    scheduler = decoding(num_requests=2, num_blocks=13)
    worker = scheduler.workers[WORKER]
    assert worker.pool.num_available < 4
    assert len(send(scheduler)) == 1 and not worker.stats.num_preemptions


def test_a_step_that_may_be_skipped_promises_no_end() -> None:
    scheduler = decoding()
    worker = scheduler.workers[WORKER]
    worker.table.limit[0] = worker.table.num_prompt[0] + worker.table.num_output[0] + 5
    send(scheduler)
    assert len(worker.records) > 2
    assert not len(certain_to_end(worker))


def test_a_request_that_is_cancelled_in_a_burst_leaves_nothing() -> None:
    scheduler = decoding(num_requests=2)
    send(scheduler)
    request = scheduler.workers[WORKER].request(0)
    scheduler.cancel(request.key, 1)
    assert request.status is RequestStatus.FINISHED_ABORTED
    while scheduler.workers[WORKER].records:
        report(scheduler)
    (step, *_) = send(scheduler)
    assert step.finished_slots == [0] or scheduler.workers[WORKER].table.num_free_slots
    scheduler.check_integrity()
