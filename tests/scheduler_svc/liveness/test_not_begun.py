"""A worker that is not heard, and has reported no step of a request (E12)."""

from __future__ import annotations

from scheduler_svc.core.state.requests.evidence import Exit
from scheduler_svc.core.state.requests.notices import Lost
from signalbox.protocol.enums import LossCause, WorkerExit
from tests.scheduler_svc.handoff.pair import A, Pair
from tests.scheduler_svc.harness import make_request


def placed(*, begins: bool = True, **settings: float) -> Pair:
    """A request that runs at A, and a new one there; `begins`: with a step that is not reported."""
    pair = Pair(**settings)
    pair.submit("old", 10)
    pair.step(A)
    pair.b.draining = True
    pair.core.submit(make_request("new", 10), 0.0)
    if begins:
        assert pair.core.schedule(A, 0.0) is not None
    pair.b.draining = False
    return pair


def losses(pair: Pair) -> dict[str, LossCause]:
    """By name, since the last call."""
    pair.core.check_integrity()
    return {n.key.request_id: n.cause for n in pair.core.drain_notices() if isinstance(n, Lost)}


def test_what_is_not_begun_moves_when_its_link_has_ended() -> None:
    pair = placed()
    pair.core.detach_worker(A, 10.0)
    pair.core.tick(10.7)
    assert losses(pair) == {}
    pair.core.tick(10.9)
    assert losses(pair) == {"new": LossCause.MOVED}
    pair.core.tick(19.9)
    assert losses(pair) == {}, "what runs alone stays until it counts as gone"


def test_it_moves_when_the_link_is_silent() -> None:
    pair = placed()
    pair.a.vitals.heard_at, pair.b.vitals.heard_at = 3.0, 4.5
    pair.core.tick(4.4)
    assert losses(pair) == {}
    pair.core.tick(4.6)
    assert losses(pair) == {"new": LossCause.MOVED}


def test_what_has_been_reported_stays() -> None:
    pair = placed()
    pair.report(A)
    pair.core.detach_worker(A, 10.0)
    pair.core.tick(10.9)
    assert losses(pair) == {}


def test_it_stays_where_nobody_else_has_room() -> None:
    pair = placed()
    pair.b.draining = True
    pair.core.detach_worker(A, 10.0)
    pair.core.tick(10.9)
    assert losses(pair) == {}


def test_a_crash_counts_against_it_when_the_guardian_takes_its_time() -> None:
    """It may be what has crashed the worker: nothing moves ahead of that word."""
    pair = placed()
    pair.core.detach_worker(A, 10.0)
    pair.core.tick(10.7)
    pair.core.worker_ended(pair.a.process, Exit(WorkerExit.CRASHED, "", 0, 10.75), 10.75)
    pair.core.tick(10.8)
    assert losses(pair)["new"] is LossCause.CRASH
