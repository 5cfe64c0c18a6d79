"""Hand-offs that fail: the request goes on at the source, and the target's slot is free."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler_svc.core.parts.handoff.commit import Arrived
from scheduler_svc.core.parts.handoff.orders import HandoffOrders
from scheduler_svc.core.parts.handoff.patience import Patience
from scheduler_svc.core.parts.handoff.typed import Handoff
from scheduler_svc.core.state.requests.handoff import Phase
from scheduler_svc.core.state.requests.notices import Placed
from scheduler_svc.core.state.requests.request import RequestStatus
from scheduler_svc.core.state.slots.slot_state import SlotState
from scheduler_svc.core.step.report import DivergenceError
from tests.scheduler_svc.handoff.pair import A, B, Pair, key_of, status_of

STOPS: dict[str, Callable[[Pair, Handoff], object]] = {
    "the target fails": lambda p, h: p.core.handoffs.failed(B, h.target_slot, h.transfer, 1.0),
    "the target's link ends": lambda p, h: p.core.detach_worker(B, 0.0),
    "the caches are reset": lambda p, h: p.core.reset_prefix_cache(),
}


def begun(num_steps: int = 4) -> tuple[Pair, Handoff]:
    pair = Pair()
    request = pair.submit("r", 10)
    for _ in range(num_steps):
        pair.step(A)
    return pair, pair.begin(request)


def test_placement_knows_the_room_that_a_failed_one_leaves() -> None:
    """HO8, Q9: though nothing else has changed at the target."""
    pair, handoff = begun()
    standings = pair.core.standings
    standings.refresh()
    before = standings.load[standings.index_of[B]], standings.room[standings.index_of[B]]
    pair.core.handoffs.failed(B, handoff.target_slot, handoff.transfer, 1.0)
    standings.refresh()
    after = standings.load[standings.index_of[B]], standings.room[standings.index_of[B]]
    assert standings.is_true(B) and after != before


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("how", STOPS)
def test_it_goes_on_at_the_source(how: str, is_frozen: bool) -> None:
    """HO8: kept under its leg ahead of the freeze, thawed under the next behind it, and told so before (HO10)."""
    pair, handoff = begun()
    if is_frozen:
        pair.freeze(handoff)
    pair.core.drain_notices()
    STOPS[how](pair, handoff)
    pair.core.check_integrity()
    assert handoff.is_over and handoff.request.worker_id == A
    told = pair.core.drain_notices()
    assert told == ([Placed(handoff.request.key, 1, A, 0, 2)] if is_frozen else [])
    before = int(pair.a.table.num_output[handoff.source_slot])
    orders = pair.orders(A)
    if is_frozen:
        assert (orders.kept_slots, orders.thawed) == ([], [(handoff.source_slot, 2)])
    else:
        assert (orders.kept_slots, orders.thawed) == ([handoff.source_slot], [])
    assert status_of(handoff.request) is RequestStatus.RUNNING
    assert int(pair.a.table.num_output[handoff.source_slot]) == before + 1
    if pair.b.attached:
        step = pair.step(B)
        assert step is not None and step.finished_slots == [handoff.target_slot]
        assert pair.b.pool.num_free == pair.b.pool.num_blocks


def test_one_that_stays_frozen_for_too_long_goes_on_at_the_source() -> None:
    """HO18: for 2 s while nothing is known; then for three times as long as others took, 0.5 s at least."""
    pair, handoff = begun()
    pair.freeze(handoff)
    assert handoff.frozen_at == 0.0
    pair.core.handoffs.tick(1.9)
    assert handoff.phase is Phase.FROZEN
    pair.core.handoffs.tick(2.1)
    assert handoff.phase is Phase.FAILED and pair.core.handoffs.counts.failed["late"] == 1
    assert pair.orders(A).thawed == [(handoff.source_slot, handoff.request.leg)]
    patience = Patience()
    patience.took(0.2)
    handoff.phase = Phase.FROZEN
    assert not patience.is_late(handoff, 0.55) and patience.is_late(handoff, 0.65)
    patience.took(0.0)
    patience.took(0.0)
    assert not patience.is_late(handoff, 0.45) and patience.is_late(handoff, 0.55)


@pytest.mark.parametrize("longest_s", [0.0, 5.0])
def test_long_steps_are_waited_for(longest_s: float) -> None:
    """HO18: two of the longest steps of both ends."""
    pair, handoff = begun()
    pair.freeze(handoff)
    pair.a.pacer.observe(duration_s=longest_s, queued_s=0.0, was_ahead=False)
    pair.core.handoffs.tick(9.0)
    assert handoff.is_over == (longest_s == 0.0)


def test_one_that_is_never_ready_ends_while_its_source_decodes() -> None:
    """HO18: after a minute."""
    pair, handoff = begun()
    pair.core.handoffs.tick(59.0)
    assert not handoff.is_over
    pair.core.handoffs.tick(61.0)
    assert handoff.is_over


@pytest.mark.parametrize("is_frozen", [False, True])
def test_an_end_releases_both_slots(is_frozen: bool) -> None:
    """HO8: a cancel."""
    pair, handoff = begun()
    if is_frozen:
        pair.freeze(handoff)
    pair.core.cancel(key_of("r"), 1)
    pair.core.check_integrity()
    for name, slot in ((A, handoff.source_slot), (B, handoff.target_slot)):
        step = pair.step(name)
        assert step is not None and step.finished_slots == [slot] and step.ordered(HandoffOrders) is None
        assert pair.core.workers[name].pool.num_free == 64
    pair.core.handoffs.ended(B, handoff.target_slot, handoff.transfer, Arrived(10, 1, b""), 2.0)


def test_an_end_between_two_orders_is_all_that_is_said() -> None:
    """HO8: a cancel behind the failure, ahead of the step that would have let it go on."""
    pair, handoff = begun()
    pair.freeze(handoff)
    pair.core.handoffs.failed(B, handoff.target_slot, handoff.transfer, 1.0)
    pair.core.cancel(key_of("r"), 1)
    step = pair.step(A)
    assert step is not None and step.ordered(HandoffOrders) is None


def test_an_end_that_comes_behind_the_commit_is_the_targets() -> None:
    """HO6: one owner; a late report of the source changes nothing but its own columns."""
    pair, handoff = begun()
    step = pair.core.schedule(A, 0.0)
    assert step is not None
    pair.core.handoffs.ready(B, handoff.target_slot, handoff.transfer, 1.0)
    frozen = pair.core.schedule(A, 0.0)
    assert frozen is not None and frozen.order(HandoffOrders).frozen_slots
    known = int(pair.a.table.num_output[handoff.source_slot]) + 1
    pair.core.handoffs.ended(
        B, handoff.target_slot, handoff.transfer, Arrived(10 + known - 1, known, b""), 2.0
    )
    pair.core.check_integrity()
    pair.report(A)
    pair.report(A)
    assert int(pair.b.table.num_output[handoff.target_slot]) == known
    pair.core.cancel(key_of("r"), 1)
    step = pair.step(B)
    assert step is not None and step.finished_slots == [handoff.target_slot]
    assert step.ordered(HandoffOrders) is None


def test_a_preemption_ahead_of_the_freeze_ends_it() -> None:
    """HO8: the worker drops the export with the preemption."""
    pair, handoff = begun()
    pair.a.table.refuse(handoff.source_slot)
    pair.step(A)
    assert handoff.is_over and handoff.request.status is RequestStatus.PREEMPTED
    assert pair.b.table.state[handoff.target_slot] == SlotState.RELEASING


def test_a_frozen_row_that_was_not_run_goes_on_ahead_of_its_preemption() -> None:
    """HO8: uncertain counts are not handed over. A worker preempts ahead of what goes on, so not in one step."""
    pair, handoff = begun()
    assert pair.core.schedule(A, 0.0) is not None
    pair.core.handoffs.ready(B, handoff.target_slot, handoff.transfer, 1.0)
    assert pair.core.schedule(A, 0.0) is not None
    pair.report(A, not_run=[(handoff.source_slot, 1)])
    assert handoff.is_over
    pair.report(A)
    step = pair.core.schedule(A, 0.0)
    assert step is not None and step.ordered(HandoffOrders) is not None
    assert step.ordered(HandoffOrders).thawed and not step.preempted_slots
    pair.report(A)
    step = pair.core.schedule(A, 0.0)
    assert step is not None and step.preempted_slots == [handoff.source_slot]
    pair.core.check_integrity()


def test_a_lost_source_takes_the_request_with_it() -> None:
    """HO6: the source has it until the end of the import was read."""
    pair, handoff = begun()
    pair.freeze(handoff)
    pair.core.detach_worker(A, 0.0)
    assert not handoff.is_over, "the target may have all of it"
    pair.core.tick(60.0)
    assert handoff.is_over and handoff.request.key not in pair.core.requests
    pair.core.check_integrity()


def test_the_target_may_end_it_while_the_source_is_away() -> None:
    """HO9"""
    pair, handoff = begun()
    pair.freeze(handoff)
    pair.core.detach_worker(A, 0.0)
    pair.end(handoff)
    assert handoff.request.worker_id == B
    pair.core.tick(60.0)
    assert pair.core.requests[key_of("r")] is handoff.request


@pytest.mark.parametrize(
    "arrived", [Arrived(99, 5, b""), Arrived(14, 5, b"short"), Arrived(12, 0, b""), Arrived(10, 99, b"")]
)
def test_what_no_target_can_have_is_a_divergence(arrived: Arrived) -> None:
    """HO6: nothing has changed then."""
    pair, handoff = begun()
    pair.freeze(handoff)
    with pytest.raises(DivergenceError):
        pair.core.handoffs.ended(B, handoff.target_slot, handoff.transfer, arrived, 2.0)
    assert handoff.request.worker_id == A and not handoff.is_over
    with pytest.raises(DivergenceError):
        pair.core.handoffs.ready(B, 999, handoff.transfer, 2.0)


def test_nothing_ends_that_was_not_frozen() -> None:
    """HO7"""
    pair, handoff = begun()
    with pytest.raises(DivergenceError, match="was not frozen"):
        pair.end(handoff)


def test_no_pause_changes_a_frozen_slot() -> None:
    """HO4: the client's pause counts where it goes on."""
    pair, handoff = begun()
    pair.freeze(handoff)
    pair.core.set_paused(key_of("r"), 1, True)
    assert pair.step(A) is None
    pair.end(handoff)
    step = pair.step(B)
    assert step is not None and step.paused_slots == [handoff.target_slot]
    pair.core.set_paused(key_of("r"), 1, False)
    step = pair.step(B)
    assert step is not None and [chunk.slot for chunk in step.chunks] == [handoff.target_slot]


def test_one_that_was_preempted_goes_without_blocks() -> None:
    """HO13"""
    pair = Pair()
    request = pair.submit("r", 10)
    slot = request.slot
    pair.a.table.refuse(slot)
    step = pair.core.schedule(A, 0.0)
    assert step is not None and step.preempted_slots == [slot]
    handoff = pair.core.hand_over(request.key, B, 0.0)
    assert not handoff.has_blocks
    pair.report(A)
    pair.step(B)
    assert handoff.is_target_told and not int(pair.b.table.num_blocks[handoff.target_slot])
    pair.core.schedule(A, 0.0)
    assert handoff.is_over, "it was resumed before it was frozen"
    pair.core.check_integrity()


def test_one_that_was_preempted_is_resumed_at_the_target() -> None:
    """HO13: without blocks, and at once."""
    pair = Pair(max_num_seqs=1)
    request = pair.submit("r", 10)
    pair.step(A)
    pair.a.table.refuse(request.slot)
    step = pair.core.schedule(A, 0.0)
    assert step is not None and step.preempted_slots == [request.slot]
    handoff = pair.core.hand_over(request.key, B, 0.0)
    pair.step(B)
    pair.core.set_paused(key_of("r"), 1, True)
    pair.report(A)
    pair.step(A)
    pair.freeze(handoff)
    assert status_of(request) is RequestStatus.WAITING_FOR_REMOTE_KVS
    pair.end(handoff)
    pair.core.set_paused(key_of("r"), 1, False)
    step = pair.step(B)
    assert step is not None and step.ordered(HandoffOrders) is not None
    assert [slot for slot, _ in step.ordered(HandoffOrders).committed] == [handoff.target_slot]
    assert [start.chunk.length for start in step.resumed] == [
        10 + int(pair.b.table.num_output[handoff.target_slot]) - 1
    ]
    assert status_of(request) is RequestStatus.RUNNING
