"""What must never be otherwise in the table of a worker's slots."""

from __future__ import annotations

import numpy as np

from scheduler_svc.core.state.requests.request import RequestStatus
from scheduler_svc.core.state.slots.slot_state import (
    DISPLACED,
    FROZEN,
    HELD,
    NO_PLACE,
    RESTING,
    SlotState,
    rest_of,
)
from scheduler_svc.core.state.slots.table import SlotTable


def check_table(table: SlotTable) -> None:
    """Asserts the invariants of all slots: lengths, and that states, flags and lists say the same."""
    state, prefill, decode = (
        table.state,
        table.state == SlotState.PREFILL,
        table.state == SlotState.DECODE,
    )
    running = np.flatnonzero(prefill | decode)
    assert (table.num_computed[running] >= 0).all()
    assert (table.num_computed[running] <= table.num_sent[running]).all(), "computed leads sent"
    assert (table.num_sent[running] <= table.target[running]).all(), "more was sent than exists"
    confirmed = table.num_prompt[decode] + table.num_output[decode]
    assert (confirmed <= table.bound[decode]).all(), "confirmed counts lead the bound"
    for number, lane in enumerate(table.lanes):
        rows = np.flatnonzero(lane.advance)
        assert (decode | (state == SlotState.RELEASING))[rows].all(), "a row that does not decode"
        assert (table.lane[rows] == number).all(), "a row of another lane"
        assert int(lane.advance.sum()) == lane.num_tokens
    assert table.decode_tokens == sum(lane.num_tokens for lane in table.lanes), (
        "tokens of rows are miscounted"
    )
    assert table.has_drafts == any(lane.has_drafts for lane in table.lanes)
    used = np.flatnonzero(state != SlotState.FREE).tolist()
    assert len(used) + table.num_free_slots == table.num_slots, "a slot is lost"
    assert all(table.requests[slot] is not None for slot in used)
    assert len(running) == table.num_running, "running slots miscounted"
    assert sorted(table.importing) == np.flatnonzero(state == SlotState.IMPORTING).tolist()
    assert sorted(table.frozen) == np.flatnonzero(table.paused & FROZEN).tolist(), (
        "a frozen slot is not listed"
    )
    _check_lists(table, running.tolist())


def _check_lists(table: SlotTable, running: list[int]) -> None:
    state = table.state
    assert set(table.preempted) == set(np.flatnonzero(state == SlotState.PREEMPTED).tolist())
    preparing = np.flatnonzero(state == SlotState.PREPARING).tolist()
    assert len(preparing) == table.num_preparing, "slots that wait for their grammar are miscounted"
    assert set(table.prepared) <= set(preparing), "a slot is ready that nobody prepared"
    for slot in preparing:
        is_frozen = slot in table.frozen
        wanted = RequestStatus.WAITING_FOR_REMOTE_KVS if is_frozen else RequestStatus.WAITING_FOR_FSM
        assert table.request(slot).status is wanted, "a slot that waits for its grammar is something else"
    assert set(table.held) == set(np.flatnonzero(table.paused & HELD).tolist())
    assert sorted(table.displaced) == np.flatnonzero(table.paused & DISPLACED).tolist()
    num_places = np.count_nonzero(table.active_priority != NO_PLACE)
    assert num_places == table.num_running - len(table.displaced), "places miscounted"
    for slot in table.aside:
        assert not table.paused[slot], "a slot that is set aside is paused for something else"
    for slot in running:
        if slot not in table.rest_changes and slot not in table.frozen:
            assert table.paused[slot] & RESTING == rest_of(table.request(slot)), "a rest was not told"
