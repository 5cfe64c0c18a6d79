"""Pairs of workers between which hand-offs fail are left out, and nobody else pays (HO21)."""

from __future__ import annotations

from collections import Counter

import pytest

from scheduler_svc.core.cluster.pairs import FIRST_S, MOST_S, PairTroubles
from scheduler_svc.core.cluster.pairs import Pair as WorkerPair
from scheduler_svc.core.parts.handoff.part import handoffs_of
from scheduler_svc.core.parts.handoff.typed import Handoff
from scheduler_svc.core.state.requests.evidence import Process
from scheduler_svc.links.codec.events import take_event
from signalbox.protocol.enums import ReadFault, WorkerHealth
from signalbox.v1 import from_worker_pb2
from tests.scheduler_svc.handoff.pair import A, B, Pair

C = "c"
W0, W1 = Process("w0", "i0"), Process("w1", "i1")
PAIR = WorkerPair(W0, W1)


def begun_to(pair: Pair) -> Counter[str]:
    return Counter(each.target.info.worker_id for each in handoffs_of(pair.a).exports.values())


def fail_at(
    pair: Pair, name: str, now: float, reason: str = "nothing answers at a:1", *, fault: int = 0
) -> int:
    """All that is under way to a worker fails there; `fault`: its number in the message."""
    failing = [each for each in handoffs_of(pair.a).exports.values() if each.target.info.worker_id == name]
    pair.step(name, now)
    for handoff in failing:
        ended = from_worker_pb2.ImportEnded(
            slot=handoff.target_slot,
            transfer=handoff.transfer,
            fault=fault,  # type: ignore[arg-type]
        )
        ended.error.message = reason
        take_event(pair.core, name, from_worker_pb2.WorkerEvent(import_ended=ended), now)
    pair.step(A, now)
    pair.step(name, now)
    return len(failing)


def end_at(pair: Pair, name: str) -> None:
    """All that is under way to a worker arrives there."""
    for handoff in [
        each for each in handoffs_of(pair.a).exports.values() if each.target.info.worker_id == name
    ]:
        move(pair, handoff)


def move(pair: Pair, handoff: Handoff) -> None:
    pair.step(handoff.target.info.worker_id)
    pair.step(A)
    pair.freeze(handoff)
    pair.end(handoff)


def draining(num_requests: int, *others: str, **settings: int) -> Pair:
    """A drains, and has so many requests."""
    pair = Pair(**settings)
    for name in others:
        pair.attach(name)
    for number in range(num_requests):
        pair.submit(f"r{number}", 8)
    pair.core.drain_worker(A, True, 0.0)
    return pair


def test_a_target_gets_half_of_the_places_while_another_has_room() -> None:
    """What goes to a dead path holds the places of others for seconds."""
    assert begun_to(draining(8, C)) == {B: 2, C: 2}
    assert begun_to(draining(8)) == {B: 4}


def test_what_failed_there_goes_elsewhere_at_once() -> None:
    """By the pair's fault, and for the first time: no request is held back for it."""
    pair = draining(4, C)
    failed = [each.request for each in handoffs_of(pair.a).exports.values() if each.target is pair.b]
    assert fail_at(pair, B, 0.5) == 2
    pair.core.tick(0.5)
    assert begun_to(pair) == {C: 4} and all(request.handoff is not None for request in failed)


def test_a_bad_pair_is_tried_seldom_while_all_goes_to_the_other() -> None:
    """Each try at B fails: 84 of 88 hand-offs went there."""
    pair, now, num_failed = draining(8, C), 0.0, 0
    while pair.a.requests():
        now += 0.1
        num_failed += fail_at(pair, B, now)
        end_at(pair, C)
        pair.core.tick(now)
        assert now < 5.0
    assert len(pair.core.workers[C].requests()) == 8 and num_failed <= 3


def test_the_only_other_one_is_tried_again_one_at_a_time() -> None:
    """LO2: after 1 s, 2 s, 4 s; a commit ends it, and its operator is told of both."""
    pair = draining(8)
    assert fail_at(pair, B, 0.5) == 4
    [told] = pair.core.handoffs.take_news()
    assert "worker b cannot read from worker a" in told and "nothing answers at a:1" in told
    tries, now = list[float](), 0.5
    while now < 10.0:
        now += 0.25
        pair.core.tick(now)
        assert len(handoffs_of(pair.a).exports) <= 1, "several are tried in a pair that was left out"
        if fail_at(pair, B, now):
            tries.append(now)
    assert tries == [1.5, 3.5, 7.5] and not pair.core.handoffs.take_news()
    [out] = pair.core.handoffs.pairs.left_out()
    assert (out.source_id, out.target_id) == (A, B)
    pair.core.tick(15.5)
    end_at(pair, B)
    assert pair.core.handoffs.take_news() == ["worker b reads from worker a again"]
    pair.core.tick(40.0)
    assert begun_to(pair) == {B: 4} and not pair.core.handoffs.pairs.left_out()


@pytest.mark.parametrize(
    ("fault", "reason"), [(ReadFault.REQUEST, "request"), (ReadFault.WITHDRAWN, "withdrawn")]
)
def test_a_failure_that_is_not_the_pairs_leaves_the_pair_alone(fault: ReadFault, reason: str) -> None:
    """HO21: what failed stays for a while, and others go there."""
    pair = draining(6)
    assert fail_at(pair, B, 0.5, "too much of its output is unread", fault=fault) == 4
    pair.core.tick(0.6)
    assert begun_to(pair) == {B: 2} and not pair.core.handoffs.pairs.left_out()
    assert pair.core.handoffs.counts.failed == {reason: 4} and not pair.core.handoffs.take_news()
    pair.core.tick(2.6)
    assert begun_to(pair) == {B: 4}


@pytest.mark.parametrize("fault", [ReadFault.UNSPECIFIED, ReadFault.PAIR, 99])
def test_a_failure_of_which_no_more_is_known_is_the_pairs(fault: int) -> None:
    """HO21: earlier releases do not say, and later ones may say what this one does not know."""
    pair = draining(1)
    assert fail_at(pair, B, 0.5, fault=fault) == 1
    assert pair.core.handoffs.pairs.left_out() and pair.core.handoffs.counts.failed == {"target": 1}


def test_a_failure_is_not_the_pairs_while_the_source_is_silent() -> None:
    """HO21: the scheduler's order has perhaps not come to it, and the target hears nothing of the request."""
    pair = draining(1)
    [handoff] = handoffs_of(pair.a).exports.values()
    pair.step(B, 0.1)
    pair.a.vitals.heard_at, pair.b.vitals.heard_at = 0.0, 5.0
    pair.core.tick(5.0)
    assert pair.a.health is WorkerHealth.SILENT and not handoff.is_over
    ended = from_worker_pb2.ImportEnded(slot=handoff.target_slot, transfer=handoff.transfer)
    ended.error.message = "nothing was heard for 5.0 s"
    take_event(pair.core, B, from_worker_pb2.WorkerEvent(import_ended=ended), 5.1)
    assert handoff.is_over and not pair.core.handoffs.pairs.has_any
    assert pair.core.handoffs.counts.failed == {"source_silent": 1}


def test_an_operators_own_order_is_tried() -> None:
    """HO21: whoever asks for it by name may want to see whether it works."""
    pair = draining(1)
    request = pair.a.requests()[0]
    fail_at(pair, B, 0.5)
    assert pair.core.hand_over(request.key, B, 0.6).target is pair.b


def test_a_new_process_of_the_target_is_another_one() -> None:
    """HO21: what failed was the process before it."""
    pair = draining(1)
    fail_at(pair, B, 0.5)
    pair.core.detach_worker(B, 0.5)
    pair.attach(B, instance="new")
    pair.core.tick(0.6)
    assert begun_to(pair) == {B: 1}
    assert [each.target_id for each in pair.core.handoffs.pairs.left_out()] == []


def test_what_fails_during_the_pause_is_the_same_failure() -> None:
    """HO21: it was begun before."""
    troubles = PairTroubles("nothing")
    for now in (1.0, 1.3, 1.9):
        troubles.failed(PAIR, "no", now)
    assert not troubles.may_try(PAIR, 1.9, 0) and troubles.may_try(PAIR, 1.0 + FIRST_S, 0)
    assert len(troubles.news) == 1


def test_a_pause_has_a_bound_and_is_forgotten() -> None:
    """LO2: by whoever has not tried for as long; not while a try is under way."""
    troubles, now, both = PairTroubles("nothing"), 0.0, {W0, W1}
    for _ in range(9):
        troubles.failed(PAIR, "no", now)
        began = now
        while not troubles.may_try(PAIR, now, 0):
            now += FIRST_S
    assert now - began == MOST_S
    troubles.forget_old(both, {PAIR}, now + MOST_S)
    troubles.forget_old(both, (), now + MOST_S - 1)
    assert troubles.has_any
    troubles.news.clear()
    troubles.forget_old(both, (), now + MOST_S)
    assert not troubles.has_any
    assert troubles.news == ["worker w1 may read from worker w0 again: nobody has tried since"]
    troubles.failed(PAIR, "no", now)
    troubles.news.clear()
    troubles.forget_old({W0}, {PAIR}, now)
    assert not troubles.has_any, "a pair is left out of which a process is gone"
    assert troubles.news == ["worker w1 may read from worker w0 again: a process of worker w1 is gone"]
