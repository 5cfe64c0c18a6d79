"""A worker that is not heard, and may not have heard that a request goes on there (HO7)."""

from __future__ import annotations

import pytest

from scheduler_svc.core.state.requests.notices import Lost
from signalbox.protocol.enums import LossCause
from tests.scheduler_svc.handoff.pair import A, B, Pair

LOST = {"r": LossCause.MOVED}


def losses(pair: Pair) -> dict[str, LossCause]:
    """By name, since the last call."""
    pair.core.check_integrity()
    return {n.key.request_id: n.cause for n in pair.core.drain_notices() if isinstance(n, Lost)}


def committed() -> Pair:
    """A request that the target has, and another that it has had for long."""
    pair = Pair()
    pair.submit("other", 10, at=B)
    request = pair.submit("r", 10)
    for _ in range(3):
        pair.step(A)
        pair.step(B)
    handoff = pair.begin(request)
    pair.freeze(handoff)
    pair.end(handoff)
    return pair


@pytest.mark.parametrize("is_said", [False, True])
def test_what_is_committed_there_moves(is_said: bool) -> None:
    """Whether a step has said so, which the worker has not reported, or none has yet."""
    pair = committed()
    if is_said:
        assert pair.core.schedule(B, 3.0) is not None
    pair.core.detach_worker(B, 10.0)
    pair.core.tick(10.4)
    assert losses(pair) == {}
    pair.core.tick(10.6)
    assert losses(pair) == LOST


def test_it_moves_when_the_link_is_silent() -> None:
    pair = committed()
    pair.a.vitals.heard_at, pair.b.vitals.heard_at = 4.5, 3.0
    pair.core.tick(4.4)
    assert losses(pair) == {}
    pair.core.tick(4.6)
    assert losses(pair) == LOST


def test_what_the_worker_has_reported_stays() -> None:
    pair = committed()
    pair.step(B)
    pair.core.detach_worker(B, 10.0)
    pair.core.tick(10.6)
    assert losses(pair) == {}


def test_what_goes_on_at_its_source_moves() -> None:
    """The source does not hear that its hand-off has ended."""
    pair = Pair()
    request = pair.submit("r", 10)
    pair.step(A)
    handoff = pair.begin(request)
    pair.freeze(handoff)
    pair.core.handoffs.stop(handoff, "late", 3.0)
    pair.core.detach_worker(A, 10.0)
    pair.core.tick(10.6)
    assert losses(pair) == LOST


def test_it_stays_where_nobody_else_has_room() -> None:
    pair = committed()
    pair.a.draining = True
    pair.core.detach_worker(B, 10.0)
    pair.core.tick(10.6)
    assert losses(pair) == {}
