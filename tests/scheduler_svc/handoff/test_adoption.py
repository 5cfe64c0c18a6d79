"""What a scheduler makes of both ends of a hand-off that say hello, in either order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scheduler_svc.core.parts.handoff.orders import HandoffOrders
from scheduler_svc.core.recovery.adopted_handoffs import LAST_TERM, LEGS_OF_TERM, last_leg_before
from scheduler_svc.core.recovery.snapshot import SlotSnapshot, SnapshotError, WorkerSnapshot
from scheduler_svc.core.state.requests.evidence import Exit, Process
from scheduler_svc.core.state.requests.notices import Placed
from scheduler_svc.core.state.requests.request import RequestStatus
from signalbox.protocol.enums import SlotStatus, WorkerExit, WorkerReach
from tests.scheduler_svc.handoff.pair import A, B, Pair, key_of
from tests.scheduler_svc.harness import make_request, make_slot

PA, PB = Process(A, "ia"), Process(B, "ib")
FROZEN: dict[str, Any] = {
    "status": SlotStatus.FROZEN,
    "frozen_status": SlotStatus.DECODE,
    "other": PB,
    "transfer": 7,
}
IMPORTED: dict[str, Any] = {
    "status": SlotStatus.IMPORTED,
    "other": PA,
    "transfer": 7,
    "leg": 1,
    "prefill_target": 40,
}


def slot_of(**fields: Any) -> SlotSnapshot:
    return make_slot(**({"request": make_request("r", 30, max_tokens=100)} | fields))


def hello(pair: Pair, name: str, *slots: SlotSnapshot, instance: str = "old") -> None:
    snapshot = WorkerSnapshot(1, 5, list(slots), scheduler_instance=instance, last_scheduled_step_id=5)
    pair.core.attach_worker(pair.info(name), snapshot, 0.0)
    pair.core.check_integrity()


def owner(pair: Pair) -> str | None:
    return pair.core.requests[key_of("r")].worker_id


def new() -> Pair:
    return Pair(2, attach=False)


@pytest.mark.parametrize("first", [A, B])
def test_what_is_frozen_and_imported_is_the_targets(first: str) -> None:
    """HO9: committed, in either order of arrival; nobody runs it before."""
    pair = new()
    slots = {A: slot_of(**FROZEN), B: slot_of(**IMPORTED, slot=3)}
    hello(pair, first, slots[first])
    assert pair.step(first) is None, "it runs nowhere"
    second = B if first == A else A
    hello(pair, second, slots[second])
    request = pair.core.requests[key_of("r")]
    assert (request.worker_id, request.slot, request.status) == (B, 3, RequestStatus.RUNNING)
    assert [slot for slot, _ in pair.orders(B).committed] == [3]
    step = pair.step(A)
    assert step is not None and step.finished_slots == [0]


def test_what_is_frozen_and_not_imported_goes_on_where_it_was() -> None:
    """HO9: under a leg above all that were told."""
    pair = new()
    hello(pair, A, slot_of(**FROZEN))
    assert pair.step(A) is None
    hello(pair, B)
    [(slot, leg)] = pair.orders(A).thawed
    assert slot == 0 and leg > 1
    assert pair.core.requests[key_of("r")].leg == leg


def test_the_target_may_have_come_first() -> None:
    """HO9"""
    pair = new()
    hello(pair, B)
    hello(pair, A, slot_of(**FROZEN))
    assert pair.orders(A).thawed


@pytest.mark.parametrize("slot", [FROZEN, IMPORTED])
def test_an_end_that_does_not_come_is_waited_for_no_longer_than_workers_are(slot: dict[str, Any]) -> None:
    """HO9: then whoever is there has it."""
    name = A if slot is FROZEN else B
    pair = new()
    pair.core.attach_frontend("f", [("r", 1)], [], 0.0)
    hello(pair, name, slot_of(**slot))
    pair.core.tick(5.0)
    assert pair.step(name) is None
    pair.core.tick(10.0)
    orders = pair.orders(name)
    assert orders.thawed or [slot for slot, _ in orders.committed] == [0]
    assert owner(pair) == name


@pytest.mark.parametrize("slot", [FROZEN, IMPORTED])
@pytest.mark.parametrize("is_told", [False, True])
def test_an_end_that_is_known_to_be_gone_is_not_waited_for(slot: dict[str, Any], is_told: bool) -> None:
    """HO9, J13: by its guardian's word at once, by a refusal that the request's frontend meets a little later, though
    nobody here has met it."""
    name, other = (A, PB) if slot is FROZEN else (B, PA)
    pair = new()
    pair.core.attach_frontend("f", [("r", 1)], [], 0.0)
    hello(pair, name, slot_of(**slot))
    if is_told:
        pair.core.worker_ended(other, Exit(WorkerExit.KILLED, "signal 9", 0.1), 0.1)
    else:
        pair.core.reach_worker("f", other, WorkerReach.REFUSED, 0.1)
        pair.core.tick(0.8)
        assert pair.step(name) is None, "its guardian may speak"
        pair.core.tick(0.95)
    orders = pair.orders(name)
    assert orders.thawed or [slot for slot, _ in orders.committed] == [0]
    assert owner(pair) == name


@pytest.mark.parametrize("how", ["gone", "empty hello", "successor"])
@pytest.mark.parametrize("slot", [FROZEN, IMPORTED])
def test_a_wait_ends_when_the_waiting_end_no_longer_has_the_request(slot: dict[str, Any], how: str) -> None:
    """HO9: nothing is kept of it."""
    name, process = (A, PA) if slot is FROZEN else (B, PB)
    pair = new()
    core = pair.core
    hello(pair, name, slot_of(**slot))
    core.attach_frontend("f", [("r", 1)], [], 0.0)
    assert key_of("r") in core.handoffs.waits.by_key
    core.detach_worker(name, 1.0)
    if how == "gone":
        core.worker_ended(process, Exit(WorkerExit.CRASHED, "signal 11", 1.0), 1.0)
        assert name not in core.workers
    elif how == "empty hello":
        hello(pair, name, instance="s2")
    else:
        pair.attach(name, instance="another")
    core.tick(30.0)
    core.check_integrity()
    assert not core.handoffs.waits.by_key and not core.requests


@pytest.mark.parametrize("is_gone", [False, True])
def test_what_has_come_is_committed_under_a_leg_above_all_that_were_told(is_gone: bool) -> None:
    """HO2, HO9: its source may have been let go on, and be gone: the frontend has heard a higher leg than it came
    with."""
    pair = new()
    pair.core.attach_frontend("f", [("r", 1)], [], 0.0)
    pair.core.drain_notices()
    hello(pair, B, slot_of(**IMPORTED))
    if is_gone:
        pair.attach(A, instance="another")
    else:
        hello(pair, A, slot_of(**FROZEN))
    *_, told = [notice for notice in pair.core.drain_notices() if isinstance(notice, Placed)]
    assert (told.worker_id, told.leg) == (B, pair.core.requests[key_of("r")].leg)
    assert told.leg > LEGS_OF_TERM
    assert pair.orders(B).committed == [(0, told.leg)]


def test_no_leg_is_given_twice_by_two_schedulers() -> None:
    """HO2, HO9: the second has not heard what the first told the target, which ran it, and is gone."""
    legs = []
    for epoch in (2, 3):
        pair = Pair(epoch, attach=False)
        hello(pair, A, slot_of(**FROZEN))
        if epoch == 2:
            hello(pair, B, slot_of(**IMPORTED))
        else:
            pair.attach(B, instance="another")
        legs.append(pair.core.requests[key_of("r")].leg)
    assert legs[1] > legs[0]


@pytest.mark.parametrize("status", [SlotStatus.DECODE, SlotStatus.ENDED, SlotStatus.FROZEN])
def test_a_frontend_hears_of_legs_that_are_found(status: SlotStatus) -> None:
    """HO10: the scheduler that gave it may have died with the word, and the frontend waits for that."""
    pair = new()
    pair.core.attach_frontend("f", [("r", 1)], [], 0.0)
    pair.core.drain_notices()
    fields = FROZEN if status is SlotStatus.FROZEN else {"status": status}
    hello(pair, A, slot_of(leg=5, **fields))
    told = [notice for notice in pair.core.drain_notices() if isinstance(notice, Placed)]
    assert [(each.worker_id, each.leg) for each in told] == [(A, 5)]


@pytest.mark.parametrize(("found", "term"), [(0, 1), (5, 3), (5000, 3), (7, LAST_TERM), (7, 1 << 40)])
def test_legs_are_counted_on_from_what_earlier_terms_may_have_given(found: int, term: int) -> None:
    """HO9: and fit 32 bits."""
    last = last_leg_before(found, term)
    assert last >= found and last >= min(term, LAST_TERM) * LEGS_OF_TERM and last < 1 << 32
    assert term < LAST_TERM or last_leg_before(last, term) > last


@pytest.mark.parametrize("first", [A, B])
def test_what_the_target_runs_is_the_targets(first: str) -> None:
    """HO9: it was committed, and the source did not hear that its slot is free."""
    pair = new()
    slots = {A: slot_of(**FROZEN), B: slot_of(leg=1, slot=3)}
    hello(pair, first, slots[first])
    hello(pair, B if first == A else A, slots[B if first == A else A])
    assert owner(pair) == B
    step = pair.step(A)
    assert step is not None and step.finished_slots == [0]


@pytest.mark.parametrize("first", [A, B])
@pytest.mark.parametrize("is_named", [False, True])
def test_what_has_ended_at_the_target_has_ended(first: str, is_named: bool) -> None:
    """HO9, T3: it was committed, and the source did not hear that its slot is free. Its frontend has not said hello, or
    does between the two and waits for it still, as the end is on its way."""
    pair = new()
    slots = {A: slot_of(**FROZEN), B: slot_of(status=SlotStatus.ENDED, leg=1, slot=3)}
    second = B if first == A else A
    hello(pair, first, slots[first])
    if is_named:
        pair.core.attach_frontend("f", [("r", 1)], [], 0.0, {"r": (PA, PB)})
    hello(pair, second, slots[second])
    assert not pair.core.requests
    steps = pair.step(A), pair.step(B)
    assert [step.finished_slots for step in steps if step is not None] == [[0], [3]]


@pytest.mark.parametrize("first", [A, B])
def test_what_the_source_runs_again_is_the_sources(first: str) -> None:
    """HO9: it was let go on, and the target did not hear that it does not get it."""
    pair = new()
    slots = {A: slot_of(leg=2), B: slot_of(**IMPORTED, slot=3)}
    hello(pair, first, slots[first])
    hello(pair, B if first == A else A, slots[B if first == A else A])
    assert owner(pair) == A
    step = pair.step(B)
    assert step is not None and step.finished_slots == [3] and step.ordered(HandoffOrders) is None


def test_the_same_scheduler_goes_on_with_it() -> None:
    """HO9: the source says hello again with a frozen slot, and the hand-off is still under way."""
    pair = Pair()
    request = pair.submit("r", 30)
    for _ in range(9):
        pair.step(A)
    handoff = pair.begin(request)
    pair.freeze(handoff)
    pair.core.detach_worker(A, 0.0)
    table = pair.a.table
    count = int(table.num_output[0])
    frozen = FROZEN | {
        "transfer": handoff.transfer,
        "num_output_tokens": count,
        "blocks": table.table(0).copy(),
    }
    hello(pair, A, slot_of(**frozen, num_computed_tokens=30 + count - 1), instance="s1")
    assert handoff.source is pair.a and not handoff.is_over
    pair.end(handoff)
    assert owner(pair) == B


def test_the_same_scheduler_lets_it_go_on_that_has_ended_it() -> None:
    """HO9: the order to go on was lost with the link."""
    pair = Pair()
    request = pair.submit("r", 30)
    handoff = pair.begin(request)
    pair.freeze(handoff)
    pair.core.detach_worker(A, 0.0)
    pair.core.handoffs.failed(B, handoff.target_slot, handoff.transfer, 0.0)
    blocks = np.arange(10, dtype=np.int32)
    hello(pair, A, slot_of(**FROZEN | {"transfer": handoff.transfer}, blocks=blocks), instance="s1")
    assert pair.orders(A).thawed


def test_the_same_scheduler_ends_what_was_not_frozen_after_all() -> None:
    """HO9: the order to freeze was lost with the link."""
    pair = Pair()
    request = pair.submit("r", 30)
    handoff = pair.begin(request)
    pair.freeze(handoff)
    pair.core.detach_worker(A, 0.0)
    hello(pair, A, slot_of(), instance="s1")
    assert handoff.is_over and owner(pair) == A and request.status is RequestStatus.RUNNING
    step = pair.step(A)
    assert step is not None and step.num_decode_rows == 1


def test_what_is_committed_while_the_source_arrives_is_not_lost() -> None:
    """HO9: its old table names it, and its new one has not come to it."""
    pair = Pair()
    request = pair.submit("r", 30)
    handoff = pair.begin(request)
    pair.freeze(handoff)
    pair.core.detach_worker(A, 0.0)
    slot = slot_of(**FROZEN | {"transfer": handoff.transfer})
    snapshot = WorkerSnapshot(1, 5, [slot], scheduler_instance="s1", last_scheduled_step_id=5)
    adoption = pair.core.begin_adoption(pair.info(A), snapshot, 0.0)
    pair.core.handoffs.ended(B, handoff.target_slot, handoff.transfer, pair.tail(handoff), 0.0)
    adoption.take_some(0.0)
    pair.core.end_adoption(adoption, 0.0)
    pair.core.check_integrity()
    assert owner(pair) == B
    step = pair.step(A)
    assert step is not None and step.finished_slots == [0]


def test_a_commit_that_was_lost_with_the_link_is_said_again() -> None:
    """HO9: the target's slot was its own already."""
    pair = Pair()
    request = pair.submit("r", 30)
    for _ in range(9):
        pair.step(A)
    handoff = pair.begin(request)
    pair.freeze(handoff)
    pair.end(handoff)
    pair.core.detach_worker(B, 0.0)
    hello(
        pair, B, slot_of(**IMPORTED | {"transfer": handoff.transfer}, slot=handoff.target_slot), instance="s1"
    )
    assert [slot for slot, _ in pair.orders(B).committed] == [handoff.target_slot]


@pytest.mark.parametrize(
    "fields",
    [FROZEN | {"other": None}, IMPORTED | {"other": None}, FROZEN | {"frozen_status": SlotStatus.ENDED}],
)
def test_a_snapshot_that_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    """J5, of what HO9 adds."""
    pair = new()
    with pytest.raises(SnapshotError):
        hello(pair, A, slot_of(**fields))
