"""Requests of frontends that do not hear the scheduler stay where they are (HO20)."""

from __future__ import annotations

import pytest

from scheduler_svc.core.moves.desk import HandoffRefusedError
from scheduler_svc.core.state.requests.handoff import Phase
from scheduler_svc.core.state.requests.notices import Placed
from scheduler_svc.core.state.requests.request import Request
from tests.scheduler_svc.handoff.pair import A, B, Pair


def running(*, acknowledges: bool) -> tuple[Pair, Request]:
    """A request at A whose frontend has a link."""
    pair = Pair()
    request = pair.submit("r", 10)
    instance = request.key.frontend_instance
    pair.core.attach_frontend(instance, [("r", request.attempt)], [], 0.0, acknowledges=acknowledges)
    pair.core.frontends.heard(instance, 0.0)
    for _ in range(4):
        pair.step(A)
    pair.core.drain_notices()
    return pair, request


@pytest.mark.parametrize("how", ["silent", "away"])
def test_no_hand_off_begins_and_one_under_way_ends(how: str) -> None:
    pair, request = running(acknowledges=False)
    handoff = pair.begin(request)
    instance, core = request.key.frontend_instance, pair.core
    if how == "silent":
        core.tick(1.4)
        assert not handoff.is_over
        core.tick(1.6)
        assert any("silent" in sentence for sentence in core.liveness.news)
    else:
        core.detach_frontend(instance, 1.0)
    assert handoff.is_over and core.handoffs.counts.failed["frontend"] == 1
    assert pair.orders(A).kept_slots == [handoff.source_slot]
    with pytest.raises(HandoffRefusedError, match="does not hear"):
        core.hand_over(request.key, B, 1.6)
    core.attach_frontend(instance, [("r", request.attempt)], [], 2.0)
    core.frontends.heard(instance, 2.0)
    assert core.hand_over(request.key, B, 9.0).phase is Phase.BEGUN


def test_a_frozen_one_goes_on_where_its_frontend_has_heard_of_it() -> None:
    pair, request = running(acknowledges=False)
    handoff = pair.begin(request)
    pair.freeze(handoff)
    pair.core.detach_frontend(request.key.frontend_instance, 1.0)
    assert handoff.phase is Phase.FROZEN


def test_it_is_frozen_when_its_frontend_has_acknowledged_the_word() -> None:
    pair, request = running(acknowledges=True)
    instance, core = request.key.frontend_instance, pair.core
    handoff = pair.begin(request)
    assert core.drain_notices() == [Placed(request.key, request.attempt, B, 0, handoff.leg, 1)]
    with pytest.raises(AssertionError, match="not frozen"):
        pair.freeze(handoff)
    assert not core.handoffs.heard(instance, 0)
    core.attach_frontend(instance, [("r", request.attempt)], [], 1.0, acknowledges=True)
    assert handoff.word == 2, "the word was lost with the link, and is said again"
    assert not core.handoffs.heard(instance, 1)
    assert core.handoffs.heard(instance, 2) and not core.handoffs.heard(instance, 2)
    assert pair.orders(A).frozen_slots == [handoff.source_slot]


@pytest.mark.parametrize("is_ready", [False, True])
def test_a_frontend_that_acknowledges_nothing_is_no_failure_of_the_pair(is_ready: bool) -> None:
    """HO18, HO20, HO21: the target is ready in time, and the request is not frozen for want of its frontend's word."""
    pair, request = running(acknowledges=True)
    instance, core = request.key.frontend_instance, pair.core
    handoff = pair.begin(request)
    if is_ready:
        core.handoffs.ready(B, handoff.target_slot, handoff.transfer, 1.0)
    core.frontends.heard(instance, 60.0)
    core.tick(60.0)
    assert not handoff.is_over
    core.frontends.heard(instance, 61.0)
    core.tick(61.0)
    assert handoff.is_over and bool(core.handoffs.pairs.left_out()) is not is_ready
    assert core.handoffs.counts.failed["frontend" if is_ready else "late"] == 1
    assert (request.history.no_handoff_before > 61.0) is is_ready, (
        "by the frontend's fault it stays for a while"
    )
