"""A new scheduler believes what it is told of processes that it has never met, and lets each request wait for those
alone that may have it (docs/design.md, J13)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler_svc.core.liveness.judgement import GUARDIAN_S
from scheduler_svc.core.recovery.frontend_desk import Question
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.evidence import Exit, Process
from scheduler_svc.core.state.requests.notices import Lost
from scheduler_svc.core.state.requests.request import RequestKey
from signalbox.protocol.enums import WorkerExit, WorkerReach
from tests.scheduler_svc.harness import make_info

A, B, OTHER = Process("a", "a-1"), Process("b", "b-1"), Process("c", "c-1")
TOLD_AT = 0.5


def make_scheduler() -> Scheduler:
    """A new one. Its first frontend waits for request x, which process A may have, and y, which B may have."""
    scheduler = Scheduler(SchedulerConfig(), 2, 0.0)
    scheduler.attach_frontend("f", [("x", 1), ("y", 1)], [], 0.3, {"x": (A,), "y": (B,)})
    scheduler.attach_frontend("g", [], [], 0.3)
    return scheduler


def attach(scheduler: Scheduler, process: Process, now: float, **fields: object) -> None:
    info = make_info(worker_id=process.worker_id, instance=process.instance, **fields)
    scheduler.attach_worker(info, None, now)


def lost(scheduler: Scheduler) -> set[str]:
    return {notice.key.request_id for notice in scheduler.drain_notices() if isinstance(notice, Lost)}


def lost_at(scheduler: Scheduler, name: str, began_at: float = TOLD_AT) -> float:
    """When the request is called lost, as ticks find it."""
    now = began_at
    while name not in lost(scheduler):
        assert now < 60.0, "never"
        now += 0.05
        scheduler.tick(now)
    return now


def killed(scheduler: Scheduler) -> None:
    scheduler.worker_ended(A, Exit(WorkerExit.KILLED, "signal 9", TOLD_AT), TOLD_AT)


def refused(scheduler: Scheduler) -> None:
    scheduler.reach_worker("f", A, WorkerReach.REFUSED, TOLD_AT)


def refused_by_another(scheduler: Scheduler) -> None:
    scheduler.reach_worker("g", A, WorkerReach.REFUSED, TOLD_AT)


def replaced(scheduler: Scheduler) -> None:
    attach(scheduler, Process("a", "a-2"), TOLD_AT)


def came_back_with_nothing(scheduler: Scheduler) -> None:
    attach(scheduler, A, TOLD_AT)


@pytest.mark.parametrize(
    ("evidence", "most_s", "least_s"),
    [
        (killed, 0.0, 0.0),
        (replaced, 0.0, 0.0),
        (came_back_with_nothing, 0.0, 0.0),
        (refused, GUARDIAN_S + 0.1, GUARDIAN_S),
        (refused_by_another, 10.1, 9.7),
        (lambda scheduler: None, 10.1, 9.7),
    ],
    ids=["killed", "replaced", "back", "refused", "refused to another", "nothing"],
)
def test_evidence_about_a_process_that_was_never_met(
    evidence: Callable[[Scheduler], None], most_s: float, least_s: float
) -> None:
    """E2 to E4, T3. A frontend that reaches it waits for it while another one does not."""
    scheduler = make_scheduler()
    evidence(scheduler)
    took_s = lost_at(scheduler, "x") - TOLD_AT if "x" not in (now := lost(scheduler)) else 0.0
    assert "y" not in now and least_s <= took_s <= most_s + 1e-9
    scheduler.check_integrity()


def test_a_frontend_that_reaches_the_process_again_waits_for_it() -> None:
    """E10: a refusal that is taken back proves nothing, and the next one counts from when it is told."""
    scheduler = make_scheduler()
    for now, reach in ((0.5, WorkerReach.REFUSED), (1.2, WorkerReach.HEARD), (1.25, WorkerReach.REFUSED)):
        scheduler.reach_worker("f", A, reach, now)
    for now in (1.3, 1.6, 1.9):
        scheduler.reach_worker("f", A, WorkerReach.REFUSED, now)  # said twice, it counts from the first time
        scheduler.tick(now)
        assert not lost(scheduler)
    scheduler.tick(1.25 + GUARDIAN_S + 0.01)
    assert lost(scheduler) == {"x"}


@pytest.mark.parametrize("is_met", [False, True])
def test_a_worker_that_cannot_have_it_delays_nobody(is_met: bool) -> None:
    """J1, J2: of another model, or merely of other requests; whether this scheduler has met it and it is away, or not
    yet."""
    scheduler = Scheduler(SchedulerConfig(), 2, 0.0)
    if is_met:
        attach(scheduler, OTHER, 0.1, model="another")
        scheduler.detach_worker("c", 0.2)
    scheduler.attach_frontend("f", [("x", 1), ("z", 1)], [], 0.3, {"x": (), "z": (OTHER,)})
    assert lost(scheduler) == {"x"}
    scheduler.check(Question(RequestKey("f", "p"), 1, "a", "a-2", ("a",), "another"), 0.4)
    assert lost(scheduler) == {"p"}
    scheduler.check(Question(RequestKey("f", "o"), 1, "a", "a-2", (), make_info().model), 0.4)
    assert lost(scheduler) == ({"o"} if is_met else set()), "of a stranger the model is not known"
    scheduler.check(Question(RequestKey("f", "q"), 1, "a", "a-2", ("c",), "another"), 0.5)
    scheduler.tick(0.6)
    assert not lost(scheduler), "that worker may have it"
    scheduler.worker_ended(OTHER, Exit(WorkerExit.KILLED, "signal 9", 0.7), 0.7)
    assert lost(scheduler) == ({"z", "q"} if is_met else {"z", "q", "o"})
    scheduler.check_integrity()


def test_a_request_waits_while_a_worker_that_may_have_it_is_away() -> None:
    """E5: one that this scheduler has met is a worker until it is known to be gone."""
    scheduler = Scheduler(SchedulerConfig(worker_grace_s=10.0, start_grace_s=0.5), 2, 0.0)
    attach(scheduler, A, 0.1)
    scheduler.detach_worker("a", 0.2)
    scheduler.attach_frontend("f", [("x", 1)], [], 0.3, {"x": (A,)})
    scheduler.reach_worker("f", A, WorkerReach.UNREACHABLE, 0.4)
    scheduler.tick(10.1)
    assert not lost(scheduler)
    scheduler.tick(10.3)
    assert lost(scheduler) == {"x"}
