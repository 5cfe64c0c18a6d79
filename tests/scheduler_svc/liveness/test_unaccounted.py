"""Requests that a frontend waits for and nobody knows (T3, J1)."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from scheduler_svc.core.cluster.unaccounted import MAX_LOST, UnaccountedRequests
from scheduler_svc.core.recovery.frontend_desk import Question
from scheduler_svc.core.recovery.snapshot import WorkerSnapshot
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.evidence import Process
from scheduler_svc.core.state.requests.notices import Lost, Placed
from scheduler_svc.core.state.requests.request import RequestKey
from scheduler_svc.step_loop import StepLoop
from signalbox.protocol.enums import FinishReason, LossCause, SlotStatus, WorkerReach
from signalbox.v1 import from_frontend_pb2, shared_pb2
from tests.scheduler_svc.harness import WORKER, make_info, make_request, make_scheduler, make_slot, report_for

KEY = make_request("a", 3).key
GRACE_S = 5.0
OURS = Process(WORKER, make_info().instance)
V, W = Process("v", "1"), Process("w", "1")


def make_unaccounted() -> UnaccountedRequests:
    """As of a scheduler that nobody tells of processes: they have a time to say hello."""
    return UnaccountedRequests(GRACE_S, 0.0, lambda f, p, named_at, now: now - named_at >= GRACE_S, GRACE_S)


def test_nothing_is_lost_before_all_workers_have_spoken() -> None:
    """I4, J1."""
    unaccounted = make_unaccounted()
    unaccounted.add(KEY, 1, None, 0.0)
    assert not unaccounted.take_lost({}, True, 1.0), (
        "one that nobody has named may come until the grace time is over"
    )
    assert not unaccounted.take_lost({}, False, GRACE_S)
    assert unaccounted.take_lost({}, True, GRACE_S) == [(KEY, 1)]
    assert not unaccounted.take_lost({}, True, GRACE_S), "it is lost once"


def test_what_a_worker_says_hello_with_is_not_lost() -> None:
    request, unaccounted = make_request("a", 3), make_unaccounted()
    unaccounted.add(KEY, request.attempt, None, 0.0)
    assert not unaccounted.take_lost({KEY: request}, True, GRACE_S)
    assert not unaccounted.take_lost({}, True, GRACE_S)


def test_an_older_attempt_does_not_stand_for_a_newer_one() -> None:
    request, unaccounted = make_request("a", 3), make_unaccounted()
    unaccounted.add(KEY, request.attempt + 1, None, 0.0)
    unaccounted.add(KEY, request.attempt, None, 0.0)
    assert unaccounted.take_lost({KEY: request}, True, GRACE_S) == [(KEY, request.attempt + 1)]


def test_what_a_worker_has_ended_is_not_lost() -> None:
    """J1: its end is on its way to its frontend, which may wait for it when the worker says hello. A newer attempt is
    another matter."""
    unaccounted = make_unaccounted()
    for attempt, lost in ((1, []), (2, [(KEY, 2)])):
        unaccounted.add(KEY, attempt, (V,), 3.0)
        unaccounted.worker_spoke(V, 4.0, [(KEY, 1)])
        assert unaccounted.take_lost({}, True, 5.5) == lost


@pytest.mark.parametrize(
    ("happens", "lost", "lost_later"),
    [
        (lambda unaccounted: None, [], [(KEY, 1)]),
        (lambda unaccounted: unaccounted.worker_spoke(V, 5.4), [], [(KEY, 1)]),
        (lambda unaccounted: unaccounted.worker_spoke(Process("v", "2"), 5.4), [(KEY, 1)], []),
        (lambda unaccounted: unaccounted.worker_went(V), [(KEY, 1)], []),
        (lambda unaccounted: unaccounted.worker_went(W), [], [(KEY, 1)]),
        (lambda unaccounted: unaccounted.add(KEY, 1, (), 5.4), [(KEY, 1)], []),
        (lambda unaccounted: unaccounted.forget("f"), [], []),
    ],
    ids=["nothing", "hello", "other process", "gone", "another goes", "check", "hello of the frontend"],
)
def test_an_end_is_on_its_way_while_its_worker_stands(
    happens: Callable[[UnaccountedRequests], None],
    lost: list[tuple[RequestKey, int]],
    lost_later: list[tuple[RequestKey, int]],
) -> None:
    """J1, J2. What has not come in time is called lost: a frontend that has it does not mind."""
    unaccounted = make_unaccounted()
    unaccounted.ended(KEY, 1, V, 5.0)
    happens(unaccounted)
    assert unaccounted.take_lost({}, True, 5.5) == lost
    assert unaccounted.take_lost({}, True, 5.0 + GRACE_S) == lost_later


def test_an_end_that_a_hello_tells_of_is_on_its_way_to_a_frontend_that_comes_later() -> None:
    """J1, J2: until another process stands in the worker's place, or the frontend asks."""
    for is_asked in (False, True):
        scheduler = Scheduler(SchedulerConfig(start_grace_s=0.0), 2, 0.0)
        slots = [make_slot(status=SlotStatus.ENDED)]
        scheduler.attach_worker(make_info(), WorkerSnapshot(1, 5, slots), 1.0)
        scheduler.attach_frontend("f", [("long", 1)], [], 1.1, {"long": (OURS,)})
        scheduler.tick(9.0)
        assert not lost(scheduler)
        if is_asked:
            scheduler.check(Question(KEY._replace(request_id="long"), 1, WORKER, ""), 9.1)
        else:
            scheduler.attach_worker(make_info(instance="another"), None, 9.1)
        assert lost(scheduler) == {"long": LossCause.UNKNOWN}
        scheduler.check_integrity()


def test_an_end_that_was_reported_while_a_frontend_was_away_is_on_its_way() -> None:
    """J1. Of a newer attempt than that nobody has ended anything."""
    scheduler = make_scheduler(start_grace_s=0.0)
    scheduler.attach_frontend("f", [], [], 0.0)
    scheduler.submit(make_request("short", 4), 0.0)
    assert scheduler.schedule(WORKER, 0.0) is not None
    scheduler.detach_frontend("f", 0.1)
    scheduler.update(WORKER, report_for(scheduler, ((0, FinishReason.STOP, 1),)), 0.2)
    scheduler.attach_frontend("f", [("short", 1)], [], 0.3, {"short": (OURS,)})
    scheduler.tick(9.0)
    assert not lost(scheduler)
    scheduler.attach_frontend("f", [("short", 2)], [], 9.1, {"short": (OURS,)})
    assert lost(scheduler) == {"short": LossCause.UNKNOWN}
    scheduler.check_integrity()


def test_an_end_does_not_come_to_a_frontend_that_looks_elsewhere() -> None:
    """J2: it has met another process in the worker's place, and the old one's hello was on its way."""
    scheduler = Scheduler(SchedulerConfig(), 2, 0.0)
    scheduler.attach_worker(make_info(), WorkerSnapshot(1, 5, [make_slot()]), 1.0)
    scheduler.attach_frontend("f", [("long", 1)], [], 1.1, {"long": (OURS,)})
    scheduler.check(Question(KEY._replace(request_id="long"), 1, WORKER, "another"), 1.2)
    assert not lost(scheduler)
    slots = [make_slot(status=SlotStatus.ENDED)]
    scheduler.attach_worker(make_info(), WorkerSnapshot(2, 6, slots), 1.3)
    assert lost(scheduler) == {"long": LossCause.WORKER_GONE}


def test_a_frontend_hears_under_which_leg_an_end_comes_to_it() -> None:
    """HO10, J1: it takes none of a leg that nobody has named, and whoever named it may be gone."""
    scheduler = Scheduler(SchedulerConfig(), 2, 0.0)
    slots = [make_slot(status=SlotStatus.ENDED, leg=3)]
    scheduler.attach_worker(make_info(), WorkerSnapshot(1, 5, slots), 1.0)
    scheduler.drain_notices()
    scheduler.attach_frontend("f", [("long", 1)], [], 1.1, {"long": (OURS,)})
    (placed,) = scheduler.drain_notices()
    assert placed == Placed(KEY._replace(request_id="long"), 1, WORKER, 0, leg=3)


def test_a_request_waits_for_its_own_processes_and_nobody_else() -> None:
    """J13: until the last of them is settled. A process whose worker says hello as another one is gone, and one whose
    time has passed is not waited for."""
    unaccounted, other = make_unaccounted(), KEY._replace(request_id="b")
    unaccounted.add(KEY, 1, (V, W), 3.0)
    unaccounted.add(other, 1, (W,), 3.0)
    unaccounted.worker_spoke(Process("w", "2"), 3.1)
    assert unaccounted.take_lost({}, True, 3.2) == [(other, 1)]
    unaccounted.worker_went(Process("v", "2"))
    assert not unaccounted.take_lost({}, True, 5.5), "another process of the name has gone"
    unaccounted.worker_went(V)
    assert unaccounted.take_lost({}, True, 5.5) == [(KEY, 1)]
    unaccounted.add(KEY, 2, (V,), 10.0)
    assert not unaccounted.take_lost({}, True, 14.9) and unaccounted.take_lost({}, True, 15.0) == [(KEY, 2)]


@pytest.mark.parametrize("reach", [WorkerReach.SILENT, WorkerReach.REFUSED, WorkerReach.UNREACHABLE])
def test_a_named_worker_that_its_frontend_hears_is_waited_for_beyond_a_short_grace(
    reach: WorkerReach,
) -> None:
    """A4, E5: it lives, and has to find us first. One that nobody hears any more is not."""
    scheduler = Scheduler(SchedulerConfig(start_grace_s=0.5, worker_grace_s=10.0), 1, 0.0)
    scheduler.attach_frontend("f", [("r", 1)], [], 0.0, {"r": (OURS,)})
    for now in (0.4, 3.0, 9.9):
        scheduler.tick(now)
        assert not lost(scheduler)
    scheduler.reach_worker("f", OURS, reach, 9.9)
    scheduler.tick(9.95)
    assert set(lost(scheduler)) == {"r"}
    scheduler.attach_frontend("f", [("r", 2)], [], 20.0, {"r": (OURS,)})
    scheduler.tick(29.9)
    assert not lost(scheduler), "a new hello says that it is heard again"
    scheduler.tick(30.0)
    assert set(lost(scheduler)) == {"r"}, "a worker that never comes is not waited for for ever"


def test_one_frontend_does_not_wait_for_the_workers_of_another() -> None:
    unaccounted = make_unaccounted()
    unaccounted.add(KEY, 1, (), 0.0)
    unaccounted.add(KEY._replace(frontend_instance="g"), 1, (W,), 0.0)
    assert unaccounted.take_lost({}, True, 0.0) == [(KEY, 1)]
    unaccounted.forget("g")
    assert not unaccounted.take_lost({}, True, 99.0), "it is gone"


def lost(scheduler: Scheduler) -> dict[str, LossCause]:
    return {n.key.request_id: n.cause for n in scheduler.drain_notices() if isinstance(n, Lost)}


def test_a_new_scheduler_says_lost_when_the_named_worker_has_said_hello() -> None:
    """T3: not after a time, and not before. E11: nobody has it."""
    scheduler = Scheduler(SchedulerConfig(), 1, 0.0)
    live = [("long", 1), ("waited", 4)]
    scheduler.attach_frontend("f", live, [], 7.0, dict.fromkeys(("long", "waited"), (OURS,)))
    scheduler.tick(7.5)
    assert not lost(scheduler), "the grace time of the start is over, but the worker was named just now"
    scheduler.attach_worker(make_info(), WorkerSnapshot(1, 5, [make_slot()]), 8.0)
    assert lost(scheduler) == {"waited": LossCause.UNKNOWN}
    scheduler.check_integrity()


@pytest.mark.parametrize("count", [500, 2000])
def test_what_a_frontend_asks_at_a_restart_costs_the_same_for_each_request(count: int) -> None:
    """J1: the hello, and a check of each request for each worker, by calls of functions and not by the clock: it was
    quadratic."""
    scheduler = Scheduler(SchedulerConfig(), 1, 0.0)
    calls = 0

    def count_calls(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count_calls)
    try:
        live = [(f"r{number}", 1) for number in range(count)]
        scheduler.attach_frontend("f", live, live[::2], 0.0, {name: (V, W) for name, _ in live})
        for _ in ("v", "w"):
            for name, attempt in live:
                scheduler.check(Question(KEY._replace(request_id=name), attempt, "v", "", ("v",)), 0.0)
        scheduler.unaccounted.worker_went(V)
        scheduler.unaccounted.worker_went(W)
        for _ in range(count // MAX_LOST + 1):
            scheduler.tick(0.1)
    finally:
        sys.setprofile(None)
    assert len(lost(scheduler)) == count
    assert calls < 60 * count


def test_many_are_called_lost_in_several_turns() -> None:
    """W1, W3: so many in each, whatever the frontend asks meanwhile, and what is said of others in between holds."""
    turns: list[Callable[[], None]] = []
    core = Scheduler(SchedulerConfig(start_grace_s=0.0), 1, 0.0)
    loop = StepLoop(core, lambda: 0.0, lambda when, turn: turns.append(turn))
    live = [shared_pb2.RequestRef(request_id=f"r{number}", attempt=1) for number in range(3 * MAX_LOST)]
    link = loop.attach_frontend(from_frontend_pb2.FrontendHello(frontend_instance="f", live=live))

    def told() -> list[str]:
        return [each.ref.request_id for message in link.outbox._items for each in message.lost]

    assert len(told()) == MAX_LOST and len(turns) == 1
    check = from_frontend_pb2.CheckRequest(ref=live[-1], worker_id="v")
    operation = from_frontend_pb2.FrontendOperation(check=check)
    loop.on_frontend(link, from_frontend_pb2.AttachFrontendRequest(operations=[operation] * 10))
    assert len(told()) == MAX_LOST and len(turns) == 1
    while turns:
        before = len(told())
        turns.pop()()
        assert len(told()) - before <= MAX_LOST
    assert told() == [ref.request_id for ref in live] and not len(core.unaccounted)
