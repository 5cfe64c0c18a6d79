"""Invariants are looked at while there is nothing to do (J11)."""

from __future__ import annotations

import pytest

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.idle_check import IdleCheck
from scheduler_svc.step_loop import StepLoop
from signalbox.links.heartbeat import HEARTBEAT_S
from tests.scheduler_svc.attached import make_hello
from tests.scheduler_svc.harness import WORKER, make_request, make_scheduler, run_step


class Clock:
    """Rises by `step_s` whenever somebody looks."""

    def __init__(self) -> None:
        self.now, self.step_s = 0.0, 0.0

    def __call__(self) -> float:
        self.now += self.step_s
        return self.now


def break_worker(scheduler: Scheduler, worker_id: str) -> None:
    scheduler.workers[worker_id].table.num_running += 1


def test_a_worker_that_contradicts_itself_is_asked_for_its_snapshot() -> None:
    """J11."""
    clock, closed = Clock(), list[str]()
    core = Scheduler(SchedulerConfig(integrity_check_s=10.0), 1, 0.0)
    loop = StepLoop(core, clock, lambda at, action: None)
    for name in ("good", "bad"):
        loop.attach_worker(
            make_hello(name).hello,
            lambda message: None,
            lambda name=name: closed.append(name),  # type: ignore[misc]
        )
    break_worker(core, "bad")
    for beat in range(200):
        clock.now = beat * HEARTBEAT_S
        for worker in core.workers.values():
            worker.vitals.heard_at = clock.now
        loop.tick()
    assert closed == ["bad"] and core.workers["good"].attached
    assert loop.idle_check.counts["bad"] >= 1 and loop.troubles.counts == {"bad": 1}


@pytest.mark.parametrize(("every_s", "expected"), [(0.0, 0), (10.0, 4)])
def test_it_is_looked_at_so_often_and_never_while_it_works(every_s: float, expected: int) -> None:
    """0: never. A worker with a step in flight is not idle."""
    clock, scheduler = Clock(), make_scheduler(integrity_check_s=every_s, worker_grace_s=1e9)
    check, looks = IdleCheck(scheduler, clock), 0
    break_worker(scheduler, WORKER)
    for second in range(75):
        looks += check.look(float(second)) is not None
    assert looks == expected, "every other time it is the turn of all requests together"
    scheduler.workers[WORKER].table.num_running -= 1
    scheduler.submit(make_request("a", 6), 0.0)
    assert scheduler.schedule(WORKER, 0.0) is not None
    break_worker(scheduler, WORKER)
    assert not any(check.look(100.0 + second) for second in range(50))


def test_checks_take_a_hundredth_of_the_time_at_most() -> None:
    """J11: one that takes 2 s is made every 200 s, whatever the setting."""
    clock, scheduler = Clock(), make_scheduler(integrity_check_s=1.0)
    check = IdleCheck(scheduler, clock)
    break_worker(scheduler, WORKER)
    clock.now, clock.step_s = 8.0, 2.0
    assert check.look(8.0) == WORKER
    assert all(check.look(float(now)) is None for now in range(9, 208))
    assert check.look(208.5) is None and check.look(500.0) == WORKER


def test_requests_that_are_nowhere_are_seen(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = make_scheduler(integrity_check_s=1.0, max_inflight_steps=1)
    check = IdleCheck(scheduler, lambda: 0.0)
    scheduler.submit(make_request("a", 6), 0.0)
    run_step(scheduler)
    del scheduler.register.requests[make_request("a", 6).key]
    assert check.look(2.0) == WORKER
    assert check.look(4.0) is None and check.counts == {WORKER: 1, "": 1}
    assert "contradicts itself" in caplog.text
