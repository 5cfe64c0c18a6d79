"""Who is suspect, who is gone, and when requests go elsewhere (docs/liveness.md, E1 to E10)."""

from __future__ import annotations

import pytest

from scheduler_svc.core.explain.explanation import explain
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.evidence import Exit, Process
from scheduler_svc.core.state.requests.notices import Lost, Placed, Rejected
from scheduler_svc.core.state.steps.step import StepReport
from signalbox.protocol.enums import LossCause, WorkerExit, WorkerHealth, WorkerReach
from tests.scheduler_svc.harness import make_info, make_request

A, B = Process("a", "a-1"), Process("b", "b-1")


def make_scheduler(*workers: Process, **settings: object) -> Scheduler:
    """A scheduler with these workers and one frontend."""
    scheduler = Scheduler(SchedulerConfig(**settings), epoch=1, now=0.0)  # type: ignore[arg-type]
    for process in workers:
        attach(scheduler, process)
    scheduler.attach_frontend("f", [], [], 0.0)
    return scheduler


def attach(scheduler: Scheduler, process: Process, now: float = 0.0) -> None:
    info = make_info(worker_id=process.worker_id, instance=process.instance)
    scheduler.attach_worker(info, None, now).vitals.heard_at = now


def submit(scheduler: Scheduler, *names: str, now: float = 0.0, **fields: object) -> None:
    for name in names:
        scheduler.submit(make_request(name, 6, **fields), now)


def losses(scheduler: Scheduler) -> dict[str, LossCause]:
    """By name, since the last call."""
    return {n.key.request_id: n.cause for n in scheduler.drain_notices() if isinstance(n, Lost)}


def placed(scheduler: Scheduler) -> dict[str, str]:
    """Worker by request, since the last call."""
    return {n.key.request_id: n.worker_id for n in scheduler.drain_notices() if isinstance(n, Placed)}


def hear(scheduler: Scheduler, now: float, *processes: Process) -> None:
    for process in processes:
        scheduler.workers[process.worker_id].vitals.heard_at = now


# -- E1: it leaves on purpose --


def test_requests_of_a_worker_that_leaves_move_at_once() -> None:
    """E1: its last word is enough; the end of its link is its own end, without a grace time."""
    scheduler = make_scheduler(A)
    submit(scheduler, "x", "y")
    scheduler.schedule("a", 0.0)
    scheduler.drain_notices()
    scheduler.worker_leaves("a", "SIGTERM", has_crashed=False)
    assert losses(scheduler) == {"x": LossCause.MOVED, "y": LossCause.MOVED}
    scheduler.check_integrity()
    submit(scheduler, "z")
    assert scheduler.schedule("a", 0.1) is None, "it runs no step any more"
    scheduler.detach_worker("a", 0.1)
    assert not scheduler.workers
    attach(scheduler, Process("a", "a-2"), 0.2)
    scheduler.schedule("a", 0.2)
    assert placed(scheduler) == {"z": "a"}


def test_a_worker_that_fails_in_good_order_makes_suspects_of_those_in_its_step() -> None:
    """E1, E2: `has_crashed` is the process's own word for what its guardian would say."""
    scheduler = make_scheduler(A, max_num_seqs=1)
    submit(scheduler, "ran", "grammar", has_grammar=False)
    scheduler.schedule("a", 0.0)
    submit(scheduler, "queued")
    scheduler.worker_leaves("a", "the device is lost", has_crashed=True)
    assert losses(scheduler) == {"ran": LossCause.CRASH}


# -- E2: the guardian's word --


@pytest.mark.parametrize("is_told_first", [False, True])
@pytest.mark.parametrize(
    ("kind", "of_rows"),
    [
        (WorkerExit.CRASHED, LossCause.CRASH),
        (WorkerExit.KILLED, LossCause.WORKER_GONE),
        (WorkerExit.STOPPED, LossCause.WORKER_GONE),
    ],
)
def test_the_guardians_word_and_the_end_of_the_link_are_enough_in_either_order(
    kind: WorkerExit, of_rows: LossCause, is_told_first: bool
) -> None:
    """E2, S1: whoever had a row in the step that ran may have caused a crash; nobody else, and no kill."""
    scheduler = make_scheduler(A)
    submit(scheduler, "row")
    assert scheduler.schedule("a", 0.0) is not None
    submit(scheduler, "compiling", has_grammar=True)
    assert scheduler.schedule("a", 0.0) is not None
    scheduler.drain_notices()
    if is_told_first:
        scheduler.worker_ended(A, Exit(kind, "SIGSEGV", 1.0), 1.0)
        assert "a" in scheduler.workers, "what its link still holds is read first"
        scheduler.detach_worker("a", 1.01)
    else:
        scheduler.detach_worker("a", 1.0)
        assert "a" in scheduler.workers
        scheduler.worker_ended(A, Exit(kind, "SIGSEGV", 1.01), 1.01)
    assert losses(scheduler) == {"row": of_rows, "compiling": LossCause.WORKER_GONE}
    assert not scheduler.workers
    scheduler.check_integrity()


def test_the_link_of_an_ended_process_is_closed_when_its_end_is_lost() -> None:
    """E2: a link may stay open behind a relay that has not noticed."""
    scheduler = make_scheduler(A)
    scheduler.worker_ended(A, Exit(WorkerExit.KILLED, "", 1.0), 1.0)
    scheduler.tick(1.1)
    assert scheduler.liveness.closing == []
    scheduler.tick(1.8)
    assert scheduler.liveness.closing == ["a"]


def test_a_word_about_another_process_of_that_name_says_nothing() -> None:
    scheduler = make_scheduler(A)
    submit(scheduler, "x")
    scheduler.schedule("a", 0.0)
    scheduler.worker_ended(Process("a", "a-0"), Exit(WorkerExit.CRASHED, "", 1.0), 1.0)
    scheduler.detach_worker("a", 1.0)
    assert losses(scheduler) == {}


def test_a_new_process_in_the_place_of_one_that_crashed_makes_suspects_too() -> None:
    """E4: it may be faster than the grace time."""
    scheduler = make_scheduler(A)
    submit(scheduler, "x")
    scheduler.schedule("a", 0.0)
    scheduler.worker_ended(A, Exit(WorkerExit.CRASHED, "", 1.0), 1.0)
    attach(scheduler, Process("a", "a-2"), 1.1)
    assert losses(scheduler) == {"x": LossCause.CRASH}
    assert scheduler.liveness.evidence.exit_of(A) is None


# -- E3, E5, E9: refused --


def test_a_refused_dial_counts_with_an_ended_link_only() -> None:
    """E3, E9: alone it may be a firewall. The guardian has a moment to say why first, as the cause matters."""
    scheduler = make_scheduler(A)
    submit(scheduler, "x")
    scheduler.schedule("a", 0.0)
    scheduler.reach_worker("f", A, WorkerReach.REFUSED, 1.0)
    scheduler.tick(1.0)
    assert losses(scheduler) == {}
    scheduler.detach_worker("a", 1.1)
    assert losses(scheduler) == {}
    scheduler.tick(1.8)
    assert losses(scheduler) == {}
    scheduler.tick(1.95)
    assert losses(scheduler) == {"x": LossCause.WORKER_GONE}


def test_a_guardian_that_has_much_to_do_is_heard_before_a_refused_dial() -> None:
    """E2, E3: it said 0.54 s behind the end of the link that the worker had crashed, and the crash did not count."""
    scheduler = make_scheduler(A)
    submit(scheduler, "x")
    scheduler.schedule("a", 0.0)
    scheduler.detach_worker("a", 1.0)
    scheduler.reach_worker("f", A, WorkerReach.REFUSED, 1.03)
    scheduler.tick(1.5)
    scheduler.worker_ended(A, Exit(WorkerExit.CRASHED, "", 1.54), 1.54)
    scheduler.tick(1.6)
    assert losses(scheduler) == {"x": LossCause.CRASH}


def test_an_ended_link_alone_waits_for_the_grace_time() -> None:
    """E5: the worker may come back with all that it has."""
    scheduler = make_scheduler(A, worker_grace_s=10.0)
    submit(scheduler, "x")
    scheduler.schedule("a", 0.0)
    scheduler.detach_worker("a", 1.0)
    scheduler.tick(10.9)
    assert losses(scheduler) == {}
    scheduler.tick(11.0)
    assert losses(scheduler) == {"x": LossCause.WORKER_GONE}


# -- E6: silent --


def run_on_a(scheduler: Scheduler, *names: str) -> None:
    """Has them placed on worker a."""
    submit(scheduler, *names)
    assert scheduler.schedule("a", 0.0) is not None
    assert set(placed(scheduler).values()) == {"a"}


def report_a(scheduler: Scheduler) -> None:
    """Worker a reports its step: what is placed there has begun (E12)."""
    record = scheduler.workers["a"].records[0]
    report = StepReport(record.step_id, record.num_decode_rows, record.num_prefill_tokens)
    scheduler.update("a", report, 0.0)


def test_a_silent_worker_gets_nothing_new_until_it_speaks_again() -> None:
    """E6, E10."""
    scheduler = make_scheduler(A)
    hear(scheduler, 1.0, A)
    scheduler.tick(2.4)
    assert scheduler.workers["a"].health is WorkerHealth.GOOD
    scheduler.tick(2.5)
    assert scheduler.workers["a"].health is WorkerHealth.SILENT
    submit(scheduler, "x", now=2.5)
    assert scheduler.schedule("a", 2.5) is None
    request = next(iter(scheduler.requests.values()))
    assert "suspect (silent)" in explain(scheduler, request, 2.5).sentence
    hear(scheduler, 2.6, A)
    scheduler.tick(2.75)
    assert scheduler.schedule("a", 2.75) is not None


def test_requests_of_a_silent_worker_move_when_no_frontend_hears_it_and_there_is_room() -> None:
    """E6: then its link is closed (E10)."""
    scheduler = make_scheduler(A)
    run_on_a(scheduler, "x", "y")
    report_a(scheduler)
    attach(scheduler, B)
    hear(scheduler, 2.0, B)
    scheduler.tick(2.0)
    assert losses(scheduler) == {} and scheduler.workers["a"].health is WorkerHealth.SILENT
    scheduler.reach_worker("f", A, WorkerReach.SILENT, 2.1)
    scheduler.tick(2.25)
    assert losses(scheduler) == {"x": LossCause.SILENT, "y": LossCause.SILENT}
    assert scheduler.liveness.closing == ["a"]
    scheduler.check_integrity()


def test_requests_of_a_silent_worker_stay_while_a_frontend_hears_it() -> None:
    """E6: two frontends, and one of them still gets tokens. One that is silent itself is not asked."""
    scheduler = make_scheduler(A)
    scheduler.attach_frontend("g", [], [], 0.0)
    scheduler.submit(make_request("x", 6), 0.0)
    other = make_request("y", 6)
    other.key = other.key._replace(frontend_instance="g")
    scheduler.submit(other, 0.0)
    scheduler.schedule("a", 0.0)
    report_a(scheduler)
    attach(scheduler, B)
    hear(scheduler, 2.0, B)
    for frontend in "fg":
        scheduler.frontends.heard(frontend, 2.0)
    scheduler.reach_worker("f", A, WorkerReach.SILENT, 2.0)
    scheduler.tick(2.0)
    assert losses(scheduler) == {}
    scheduler.frontends.heard("f", 4.0)
    hear(scheduler, 4.0, B)
    scheduler.tick(4.0)
    assert set(losses(scheduler)) == {"x", "y"}


def test_a_worker_that_is_heard_by_a_frontend_alone_is_told_so() -> None:
    """H4: it would wait for steps. A worker without requests, or that nobody hears, is not told."""
    scheduler = make_scheduler(A, B)
    scheduler.workers["b"].draining = True
    run_on_a(scheduler, "x")
    a, b = scheduler.workers["a"], scheduler.workers["b"]
    for now in (1.6, 2.1):
        scheduler.frontends.heard("f", now)
        scheduler.tick(now)
        told = [worker for worker in (a, b) if scheduler.liveness.hears_nothing_of(worker, now)]
        assert told == ([a] if now > 2 else [])
    scheduler.reach_worker("f", A, WorkerReach.SILENT, 2.1)
    assert not scheduler.liveness.hears_nothing_of(a, 2.1)
    scheduler.reach_worker("f", A, WorkerReach.HEARD, 2.1)
    assert scheduler.liveness.hears_nothing_of(a, 2.1)
    hear(scheduler, 2.2, A)
    assert not scheduler.liveness.hears_nothing_of(a, 2.2)


def test_requests_of_a_silent_worker_stay_where_nobody_else_has_room() -> None:
    """E6: waiting costs less than to wait in a queue. What has room moves, the oldest first."""
    scheduler = make_scheduler(A, max_num_seqs=3, watermark_blocks_per_seq=0)
    run_on_a(scheduler, "x", "y", "z")
    scheduler.reach_worker("f", A, WorkerReach.SILENT, 2.0)
    scheduler.tick(2.0)
    assert losses(scheduler) == {} and scheduler.liveness.closing == []
    attach(scheduler, B, 2.0)
    submit(scheduler, "p", "q")
    assert scheduler.schedule("b", 2.0) is not None
    scheduler.tick(2.1)
    assert losses(scheduler) == {"x": LossCause.SILENT}
    scheduler.check_integrity()


def test_requests_of_a_worker_without_a_link_move_when_no_frontend_hears_it() -> None:
    """E6: cut off from all of us, it need not be waited for; with a frontend that hears it, it may come back."""
    scheduler = make_scheduler(A)
    run_on_a(scheduler, "x")
    report_a(scheduler)
    attach(scheduler, B)
    scheduler.detach_worker("a", 1.0)
    hear(scheduler, 2.6, B)
    scheduler.tick(2.6)
    assert losses(scheduler) == {}
    scheduler.reach_worker("f", A, WorkerReach.UNREACHABLE, 2.6)
    scheduler.tick(2.7)
    assert losses(scheduler) == {"x": LossCause.SILENT}


# -- unreachable for a frontend --


def test_nothing_is_placed_where_its_frontend_hears_nothing() -> None:
    """F5: a partial partition is not answered by placing on the worker that the frontend cannot reach."""
    scheduler = make_scheduler(A, B)
    scheduler.reach_worker("f", A, WorkerReach.UNREACHABLE, 1.0)
    submit(scheduler, "x", now=1.0)
    assert scheduler.schedule("a", 1.0) is None
    assert scheduler.schedule("b", 1.0) is not None
    assert placed(scheduler) == {"x": "b"}
    scheduler.reach_worker("f", A, WorkerReach.HEARD, 2.0)
    submit(scheduler, "y", now=2.0)
    assert scheduler.schedule("a", 2.0) is not None


def test_a_request_whose_frontend_reaches_no_worker_is_refused_after_the_grace() -> None:
    """F5: with one clear error."""
    scheduler = make_scheduler(A, no_worker_grace_s=30.0)
    scheduler.reach_worker("f", A, WorkerReach.REFUSED, 1.0)
    submit(scheduler, "x", now=2.0)
    request = next(iter(scheduler.requests.values()))
    sentence = explain(scheduler, request, 2.0).sentence
    assert "a cannot be reached from the frontend that has the request" in sentence
    hear(scheduler, 30.9, A)
    scheduler.tick(30.9)
    assert not scheduler.drain_notices()
    hear(scheduler, 31.0, A)
    scheduler.tick(31.0)
    (refusal,) = scheduler.drain_notices()
    assert isinstance(refusal, Rejected) and refusal.code == "UnavailableError"
    assert "reached" in refusal.message
    scheduler.check_integrity()


def test_what_a_frontend_said_goes_with_its_hello_and_with_the_process() -> None:
    scheduler = make_scheduler(A)
    scheduler.reach_worker("f", A, WorkerReach.REFUSED, 1.0)
    assert scheduler.workers["a"].vitals.unheard_by == {"f"}
    scheduler.attach_frontend("f", [], [], 1.1)
    assert scheduler.workers["a"].vitals.unheard_by == frozenset()
    scheduler.reach_worker("f", A, WorkerReach.REFUSED, 1.2)
    attach(scheduler, Process("a", "a-2"), 1.3)
    assert scheduler.workers["a"].vitals.unheard_by == frozenset()
    assert scheduler.liveness.evidence.reach_of("f", A) is WorkerReach.HEARD
