"""Who is handed over to whom, by an operator's order or because a worker drains."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from scheduler_svc.core.liveness.withdrawal import withdraw
from scheduler_svc.core.moves.desk import HandoffRefusedError
from scheduler_svc.core.parts.handoff.eligibility import same_layout, what_differs
from scheduler_svc.core.parts.handoff.part import handoffs_of
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE
from scheduler_svc.core.state.requests.request import RequestStatus
from signalbox.protocol.model_identity import ModelIdentity
from tests.scheduler_svc.handoff.pair import A, B, Pair, key_of

DIFFERENT: dict[str, tuple[Callable[[Pair], object], str]] = {
    "model": (
        lambda p: p.attach(B, instance="x", model="other"),
        r"b serves the model 'other', and worker a",
    ),
    "no layout": (
        lambda p: p.attach(B, instance="x", kv_layout=""),
        r"b hands no requests over: .*--hand-off",
    ),
    "identity": (
        lambda p: p.attach(B, instance="x", identity=ModelIdentity("w2", "f", "c")),
        r"b has the identity .*w2.*, and worker a .*same weights",
    ),
    "block size": (
        lambda p: p.attach(B, instance="x", block_size=8),
        r"b has blocks of 8 tokens, .*--block-size",
    ),
    "layout": (
        lambda p: p.attach(B, instance="x", kv_layout="other"),
        r"b lays out its cache .*settings of the",
    ),
}
"""Workers between which nothing can move, and the sentence that says why."""
UNFIT: dict[str, Callable[[Pair], object]] = {
    **{name: attach for name, (attach, _) in DIFFERENT.items()},
    "drains": lambda p: p.core.drain_worker(B, True, 0.0),
    "unheard": lambda p: (
        p.b.vitals.unheard_by.__class__ and setattr(p.b.vitals, "unheard_by", frozenset({"f"}))
    ),
    "blocks": lambda p: p.attach(B, instance="x", num_blocks=3),
    "slots": lambda p: [p.attach(B, instance="x", num_slots=1), p.submit("other", 1, at=B)],
}


@pytest.mark.parametrize("how", UNFIT)
def test_between_others_nothing_moves(how: str) -> None:
    """HO1, HO13: the worker is named that stands in the way, and nothing has changed."""
    pair = Pair()
    pair.submit("r", 10)
    UNFIT[how](pair)
    with pytest.raises(HandoffRefusedError) as refused:
        pair.core.hand_over(key_of("r"), B, 0.0)
    assert refused.value.field == "worker_id" and not handoffs_of(pair.b).is_busy
    pair.core.check_integrity()


@pytest.mark.parametrize("what", DIFFERENT)
def test_each_difference_has_a_sentence_of_its_own(what: str) -> None:
    """HO1: it names both workers and what to do."""
    pair = Pair()
    pair.submit("r", 10)
    attach, sentence = DIFFERENT[what]
    assert same_layout(pair.a, pair.b)
    attach(pair)
    assert not same_layout(pair.a, pair.b)
    with pytest.raises(HandoffRefusedError, match=sentence):
        pair.core.hand_over(key_of("r"), B, 0.0)


def test_who_does_not_hand_over_is_named() -> None:
    pair = Pair()
    pair.attach(A, instance="x", kv_layout="")
    assert what_differs(pair.a, pair.b).startswith(f"worker {A} hands no requests over")


def test_some_requests_stay() -> None:
    """HO13"""
    pair = Pair()
    for name, column in (("suspect", "num_crashes"), ("read", "wants_prompt_logprobs")):
        request = pair.submit(name, 10)
        setattr(request, column, True)
        pair.a.table.num_output[request.slot] = 0
        with pytest.raises(HandoffRefusedError) as refused:
            pair.core.hand_over(key_of(name), B, 0.0)
        assert refused.value.field == "request_id"
        setattr(request, column, False)
        pair.core.cancel(key_of(name), 1)
    for name in ("nobody", ""):
        with pytest.raises(HandoffRefusedError):
            pair.core.hand_over(key_of(name), B, 0.0)


def test_numbers_and_legs_are_used_once() -> None:
    """HO2"""
    pair = Pair()
    request = pair.submit("r", 10)
    first = pair.begin(request)
    pair.core.handoffs.failed(B, first.target_slot, first.transfer, 0.0)
    pair.step(A)
    pair.step(B)
    second = pair.begin(request)
    assert (first.leg, second.leg, request.leg) == (1, 2, 0)
    assert first.transfer != second.transfer and first.key != second.key
    pair.core.handoffs.ready(B, second.target_slot, first.transfer, 0.0)
    assert not handoffs_of(pair.a).freezing, "the word of a transfer that is over"


def test_a_worker_that_drains_hands_over_most_output_first() -> None:
    """HO14: a few at a time, until it is empty; its count is exact."""
    pair = Pair(max_handoffs_per_worker=2)
    for number in range(4):
        pair.submit(f"r{number}", 8)
    assert pair.core.drain_worker(A, True, 0.0) == 4
    assert [each.request.key.request_id for each in handoffs_of(pair.a).exports.values()] == ["r0", "r1"]
    now = 0.0
    while pair.a.requests():
        now += 0.5
        assert now < 10
        pair.step(B)
        pair.step(A)
        for handoff in list(handoffs_of(pair.a).exports.values()):
            pair.freeze(handoff)
            pair.end(handoff)
        pair.core.tick(0.1)
    assert len(pair.b.requests()) == 4
    while pair.step(A) is not None:
        pass
    assert not handoffs_of(pair.a).is_busy and pair.a.pool.num_free == 64


def test_what_nobody_has_room_for_stays() -> None:
    """HO14"""
    pair = Pair()
    pair.attach(B, instance="x", num_blocks=2)
    pair.submit("r", 30)
    pair.core.drain_worker(A, True, 0.0)
    assert not handoffs_of(pair.a).exports
    assert pair.step(A) is not None


def handed_over(pair: Pair, hashes: bytes) -> None:
    request = pair.submit("r", 12, hashes=hashes)
    pair.step(A)
    handoff = pair.begin(request)
    pair.freeze(handoff)
    pair.end(handoff)


def test_its_blocks_are_found_at_the_target() -> None:
    """HO12: by their names, and not those that were computed before a reset (C7)."""
    hashes = bytes(range(48))
    pair = Pair()
    handed_over(pair, hashes)
    assert pair.b.pool.prefix_length(hashes) == 3
    pair = Pair()
    request = pair.submit("r", 12, hashes=hashes)
    pair.step(A)
    pair.core.reset_prefix_cache()
    pair.attach(B, instance="behind it")
    handoff = pair.begin(request)
    pair.freeze(handoff)
    pair.end(handoff)
    for _ in range(4):
        pair.step(B)
    step, slot = pair.core.schedule(B, 0.0), request.slot
    assert step is not None and slot is not None
    name = np.frombuffer(bytes(16), HASH_DTYPE)
    pair.report(B, sealed_slots=np.array([slot]), sealed_indexes=np.array([3]), sealed_hashes=name)
    assert pair.b.pool.prefix_length(hashes) == pair.b.pool.prefix_length(bytes(16)) == 0


def test_what_is_cached_at_the_target_is_shared() -> None:
    """HO3: it is not read."""
    hashes = bytes(range(48))
    pair = Pair()
    pair.submit("there", 13, at=B, hashes=hashes)
    request = pair.submit("r", 14, hashes=hashes)
    pair.step(A)
    handoff = pair.core.hand_over(request.key, B, 0.0)
    orders = pair.orders(B)
    assert [start.num_found for start in orders.import_starts] == [3]
    assert int(np.count_nonzero(pair.b.pool.ref_counts == 2)) == 3
    pair.core.handoffs.failed(B, handoff.target_slot, handoff.transfer, 0.0)
    pair.core.check_integrity()


def test_what_is_wrong_at_one_is_withdrawn_at_the_other() -> None:
    """N2, HO12: the request that took it over starts anew."""
    hashes = bytes(range(48))
    pair = Pair()
    handed_over(pair, hashes)
    late = pair.submit("late", 12, hashes=hashes)
    slot = late.slot
    assert slot is not None
    pair.a.table.num_found[slot] = 0
    names = withdraw(pair.a, [slot], pair.core.register)
    pair.core.handoffs.withdraw(pair.a, names, 0.0)
    assert key_of("r") not in pair.core.requests
    assert pair.b.pool.prefix_length(hashes) == 0
    pair.core.check_integrity()
    assert late.status is RequestStatus.RUNNING
