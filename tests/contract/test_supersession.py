"""Numbers that supersede each other (I11): of ordered ones the highest counts, of exact ones the expected one."""

from __future__ import annotations

from itertools import pairwise

import pytest

from frontend_svc.links.known_leader import KnownLeader
from frontend_svc.requests.sessions.legs import Hearing, Legs
from scheduler_svc.core.cluster.term import Term
from scheduler_svc.core.recovery.adopted_handoffs import LAST_TERM, LEGS_OF_TERM, last_leg_before
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.links.hello_numbers import HelloNumbers
from signalbox.errors import UnavailableError
from tests.scheduler_svc.harness import make_request, make_scheduler
from worker_svc.core.batch import RunnerInfo
from worker_svc.core.step import StepDelta
from worker_svc.core.worker_core import WorkerCore


def test_orders_for_another_attempt_end_nothing() -> None:
    """I11, I1: the scheduler has the one that was submitted last."""
    scheduler: Scheduler = make_scheduler()
    first, second = make_request("r", 5), make_request("r", 5, attempt=2)
    scheduler.submit(first, 0.0)
    scheduler.submit(second, 0.0)
    scheduler.cancel(first.key, first.attempt)
    assert first.status.is_finished and scheduler.requests[second.key] is second


def test_a_leg_supersedes_those_before_it() -> None:
    """I11, HO10."""
    legs = Legs()
    for leg, worker in ((1, "a"), (2, "b")):
        legs.name(leg, worker)
        assert legs.hear(leg, worker) is Hearing.TAKEN
    assert legs.hear(1, "a") is Hearing.IGNORED and legs.current == 2


@pytest.mark.parametrize("found", [0, 5, 3 * LEGS_OF_TERM])
def test_legs_of_a_term_are_above_those_of_every_lower_one(found: int) -> None:
    """I11: so one order holds for legs and terms."""
    for lower, higher in pairwise((1, 2, 7, LAST_TERM - 1, LAST_TERM)):
        most_of_lower = min(lower, LAST_TERM) * LEGS_OF_TERM + LEGS_OF_TERM - 1
        assert last_leg_before(found, higher) + 1 > most_of_lower


def test_a_term_supersedes_those_before_it() -> None:
    """I11, T1, T2, T6: for a worker, a frontend, and another scheduler."""
    core = WorkerCore(RunnerInfo("m", 8, 4, 32, 100, ()), num_slots=2)
    core.scheduler_epoch = 5
    assert core.refusal_of(StepDelta(1, 4)) == "epoch 4 is older than 5"
    assert core.refusal_of(StepDelta(1, 5)) is None
    leader = KnownLeader()
    leader.hear(5, "new")
    leader.hear(4, "old")
    assert (leader.term, leader.instance) == (5, "new") and leader.is_newer_than(4, "old")
    term = Term("own", 5)
    assert not term.meet(4, "old") and term.number == 5
    assert term.meet(5, "other") and term.number == 6


def test_a_hello_supersedes_those_before_it() -> None:
    """I11, J12."""
    hellos = HelloNumbers()
    hellos.meet("process", 2)
    with pytest.raises(UnavailableError, match="hello 1 of process process comes late"):
        hellos.meet("process", 1)
    hellos.meet("process", 2)
    hellos.meet("other", 1)
