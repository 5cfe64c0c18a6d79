"""Which worker processes a hello names for each request (docs/design.md, J1)."""

from __future__ import annotations

from frontend_svc.links.submission import make_check
from frontend_svc.links.worker_process import WorkerProcess, find_holders
from frontend_svc.models import Worker
from frontend_svc.requests.sessions.session import Session
from signalbox.protocol.enums import WorkerReach
from tests.frontend_svc.requests.test_sessions import Recorder, make_request, make_table


def make_process(name: str, model: str = "toy", log_number: int = 1, **fields: WorkerReach) -> WorkerProcess:
    worker = Worker(name[0], name, "host:1", model, 512, 16, 512, 100, "")
    return WorkerProcess(worker, log_number=log_number, **fields)


def make_sessions(*placed: str) -> list[Session]:
    """Sessions on these workers; an empty name: nobody is known to have it."""
    table = make_table(Recorder())
    sessions = [table.open(make_request(f"r{number}")) for number in range(len(placed))]
    for session, worker_id in zip(sessions, placed, strict=True):
        if worker_id:
            session.on_placed(session.attempt, worker_id, num_cached_tokens=0)
    return sessions


def names_of(processes: list[WorkerProcess], sessions: list[Session]) -> list[set[str]]:
    holders = find_holders(processes, sessions)
    return [{holders.workers[place].instance for place in places} for places in holders.places]


def test_a_request_is_where_it_was_placed_and_nowhere_else() -> None:
    """J13: in any process of that name that does not refuse us."""
    processes = [
        make_process("v1", reach=WorkerReach.REFUSED),
        make_process("v2", reach=WorkerReach.SILENT),
        make_process("v3", log_number=0),
        make_process("w1"),
        make_process("x1", model="another"),
    ]
    assert names_of(processes, make_sessions("v", "w", "y")) == [{"v2", "v3"}, {"w1"}, set()]


def test_a_request_that_is_nowhere_for_all_we_know_may_be_at_any_worker_of_its_model() -> None:
    """The word where it is may have died with the scheduler. Who has never been heard has nothing of ours."""
    processes = [make_process("v1"), make_process("w1", log_number=0), make_process("x1", model="another")]
    assert names_of(processes, make_sessions("")) == [{"v1"}]


def test_a_leg_that_goes_on_elsewhere_may_be_at_both() -> None:
    """HO10"""
    (session,) = sessions = make_sessions("v")
    session.on_placed(session.attempt, "w", num_cached_tokens=0, leg=1)
    assert names_of([make_process("v1"), make_process("w1")], sessions) == [{"v1", "w1"}]


def test_a_question_says_who_may_have_the_request() -> None:
    """J2"""
    known, unknown = (make_check(each, "v", "v2").check for each in make_sessions("w", ""))
    assert (list(known.may_be_on), list(unknown.may_be_on)) == (["w"], [])
    assert unknown.model == "toy"
