"""A hand-off from its beginning to its commit."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler_svc.core.parts.handoff.orders import HandoffOrders
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE
from scheduler_svc.core.state.requests.handoff import Phase
from scheduler_svc.core.state.requests.notices import Placed
from scheduler_svc.core.state.requests.request import RequestStatus
from scheduler_svc.core.state.slots.slot_state import SlotState
from signalbox.protocol.block_groups import BlockGroup, BlockGroupKind
from signalbox.protocol.hash_chain import HASH_BYTES
from tests.scheduler_svc.handoff.pair import A, B, Pair, status_of


def test_a_request_goes_on_where_it_stood() -> None:
    """HO3, HO4, HO6: blocks at the target, a freeze, and one owner before and behind the commit."""
    pair = Pair()
    request = pair.submit("r", 10)
    for _ in range(5):
        pair.step(A)
    handoff = pair.begin(request)
    assert pair.b.table.state[handoff.target_slot] == SlotState.IMPORTING
    assert request.worker_id == A
    num_output = int(pair.a.table.num_output[handoff.source_slot])
    pair.step(A)
    assert int(pair.a.table.num_output[handoff.source_slot]) == num_output + 1, "it runs on meanwhile"
    pair.freeze(handoff)
    assert status_of(request) is RequestStatus.WAITING_FOR_REMOTE_KVS
    frozen = int(pair.a.table.num_output[handoff.source_slot])
    assert pair.step(A) is None
    assert int(pair.a.table.num_output[handoff.source_slot]) == frozen
    pair.end(handoff)
    assert (request.worker_id, request.slot, request.leg) == (B, handoff.target_slot, 1)
    assert handoff.phase is Phase.COMMITTED
    step = pair.step(B)
    assert step is not None and step.ordered(HandoffOrders) is not None
    assert [slot for slot, _ in step.ordered(HandoffOrders).committed] == [handoff.target_slot]
    assert [(chunk.start, chunk.length) for chunk in step.chunks] == [(10 + frozen - 1, 1)]
    released = pair.step(A)
    assert released is not None and released.finished_slots == [handoff.source_slot]
    assert pair.a.pool.num_free == pair.a.pool.num_blocks
    for _ in range(30):
        pair.step(B)
    assert int(pair.b.table.num_output[request.slot]) == frozen + 31


def test_its_frontend_hears_of_the_leg_before_any_worker() -> None:
    """HO10"""
    pair = Pair()
    request = pair.submit("r", 10)
    pair.core.drain_notices()
    pair.core.hand_over(request.key, B, 0.0)
    assert pair.core.drain_notices() == [Placed(request.key, 1, B, 0, 1)]
    pair.core.attach_frontend("f", [("r", 1)], [], 0.0)
    assert pair.core.drain_notices() == [Placed(request.key, 1, B, 0, 1)]


@pytest.mark.parametrize("num_steps", range(1, 12))
def test_grants_follow_the_source(num_steps: int) -> None:
    """HO3: at the freeze the target has the blocks to go on with, however far the source has come."""
    pair = Pair()
    request = pair.submit("r", 10)
    handoff = pair.begin(request)
    for _ in range(num_steps):
        pair.step(A)
    pair.freeze(handoff)
    pair.end(handoff)
    pair.step(B)
    for _ in range(6):
        pair.step(B)
    assert status_of(request) is RequestStatus.RUNNING


def test_blocks_that_a_window_passed_before_they_were_read_are_not_found() -> None:
    """HO12, C3: the target has places for them in its table, and they were never written."""
    pair = Pair(attach=False)
    pair.fields = {"groups": (BlockGroup(BlockGroupKind.WINDOW, 8, 64),)}
    pair.attach(A)
    pair.attach(B)
    names = bytes(range(10 * HASH_BYTES))
    handoff = pair.begin(pair.submit("r", 40, hashes=names))
    assert int(pair.b.windows[0].firsts[handoff.target_slot]) == 8
    for _ in range(12):
        pair.step(A)
        pair.step(B)
    pair.freeze(handoff)
    pair.end(handoff)
    hashes = np.frombuffer(names, HASH_DTYPE)
    assert (pair.b.pool.lookup(hashes) >= 0).sum() == 10
    assert pair.b.windows[0].find(hashes).tolist() == [-1] * 10


def test_a_prompt_goes_on_with_the_blocks_that_its_window_has_passed() -> None:
    """WB1, GR5: the target's group has no block but those of the request's own table."""
    pair = Pair(attach=False, max_num_batched_tokens=8)
    pair.attach(A, groups=(BlockGroup(BlockGroupKind.WINDOW, 8, 64),))
    pair.attach(B, groups=(BlockGroup(BlockGroupKind.WINDOW, 8, 6),))
    request = pair.submit("r", 60)
    handoff = pair.begin(request)
    pair.step(A)
    pair.step(B)
    pair.freeze(handoff)
    pair.end(handoff)
    for _ in range(6):
        pair.step(B)
    assert int(pair.b.table.num_output[handoff.target_slot]) > 0
