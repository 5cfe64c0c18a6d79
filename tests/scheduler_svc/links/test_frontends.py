"""What frontends wait for, by their own word."""

from __future__ import annotations

from scheduler_svc.core.cluster.frontends import Frontends
from scheduler_svc.core.recovery.snapshot import WorkerSnapshot
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.requests.request import RequestKey
from scheduler_svc.core.state.steps.step import StepReport
from signalbox.protocol.enums import FinishReason
from tests.scheduler_svc.harness import (
    WORKER,
    make_info,
    make_request,
    make_scheduler,
    make_slot,
    report_for,
    run_step,
)

KEY = RequestKey("f", "a")


def test_a_frontend_wants_what_it_named_and_has_not_withdrawn() -> None:
    """J1."""
    frontends = Frontends(grace_s=1.0)
    assert frontends.may_want(KEY, 1), "it may still say hello"
    frontends.attach("f", [("a", 2)], [])
    assert frontends.may_want(KEY, 2) and not frontends.may_want(KEY, 1)
    frontends.withdraw(KEY, 2)
    assert not frontends.may_want(KEY, 2)


def test_a_frontend_that_is_away_may_want_anything_until_its_grace_time_has_passed() -> None:
    frontends = Frontends(grace_s=1.0)
    frontends.attach("f", [], [])
    frontends.detach("f", 5.0)
    frontends.expect("g", 5.5)
    assert frontends.may_want(KEY, 1)
    assert frontends.take_gone(5.9) == [] and frontends.take_gone(6.0) == ["f"]
    frontends.attach("g", [], [])
    assert frontends.take_gone(99.0) == [], "one that is there is never gone"


def test_a_frontend_is_told_that_it_is_not_heard_once_its_end_would_be_known() -> None:
    """H4, H3: only one that was judged to be silent, by a clock that went on."""
    frontends = Frontends(grace_s=1.0)
    frontends.attach("f", [], [])
    frontends.heard("f", 1.0)
    assert not frontends.hears_nothing_of("f", 9.0, 1.5)
    assert frontends.judge(2.6, 1.5) == ["f"]
    assert not frontends.hears_nothing_of("f", 2.9, 1.5) and frontends.hears_nothing_of("f", 3.0, 1.5)
    frontends.heard("f", 3.1)
    assert not frontends.hears_nothing_of("f", 3.1, 1.5)
    assert not frontends.hears_nothing_of("g", 9.0, 1.5)


def test_a_pause_is_remembered_for_a_request_that_nobody_knows_yet() -> None:
    frontends = Frontends(grace_s=1.0)
    frontends.attach("f", [("a", 1)], [("a", 1)])
    assert frontends.is_paused(KEY, 1) and not frontends.is_paused(KEY, 2)
    frontends.set_paused(KEY, 1, False)
    assert not frontends.is_paused(KEY, 1)


def test_the_newest_attempt_is_wanted_and_no_older_one() -> None:
    """J4: a worker that comes late says hello with an attempt that was lost, and submitted again."""
    frontends = Frontends(grace_s=1.0)
    frontends.attach("f", [("a", 1)], [("a", 1)])
    frontends.submitted(KEY, 2)
    assert frontends.may_want(KEY, 2) and not frontends.may_want(KEY, 1) and not frontends.is_paused(KEY, 1)
    frontends.withdraw(KEY, 1)
    assert frontends.may_want(KEY, 2)
    frontends.detach("f", 0.0)
    assert frontends.may_want(KEY, 3) and not frontends.may_want(KEY, 1), (
        "it may be elsewhere with a newer one"
    )


def test_what_has_ended_while_a_frontend_was_away_has_ended() -> None:
    """T3, HO9: two workers may tell of an attempt that was handed over."""
    frontends = Frontends(grace_s=1.0)
    frontends.expect("f", 0.0)
    frontends.withdraw(KEY, 1)
    assert not frontends.may_want(KEY, 1) and frontends.may_want(KEY, 2)
    frontends.attach("f", [("a", 1), ("b", 4)], [])
    assert not frontends.may_want(KEY, 1), "the end is on its way to it"
    frontends.detach("f", 2.0)
    frontends.attach("f", [("b", 4)], [])
    assert not frontends.by_instance["f"].ended, "it will never name it again"


def test_a_late_worker_does_not_bring_back_what_has_ended_elsewhere() -> None:
    """J4: its attempt runs for nobody."""
    scheduler = make_scheduler(max_inflight_steps=1, start_grace_s=0.0)
    scheduler.attach_frontend("f", [("long", 1)], [], 0.0)
    scheduler.submit(make_request("long", 6, attempt=2), 1.0)
    run_step(scheduler)
    scheduler.update(WORKER, report_after_step(scheduler), 1.0)
    assert not scheduler.requests
    scheduler.attach_worker(make_info(worker_id="late"), WorkerSnapshot(1, 5, [make_slot()]), 2.0)
    assert not scheduler.requests
    scheduler.check_integrity()


def report_after_step(scheduler: Scheduler) -> StepReport:
    """The next step, in which slot 0 ends."""
    assert scheduler.schedule(WORKER, 1.0) is not None
    return report_for(scheduler, finished=((0, FinishReason.STOP, 2),))
