"""What a step of a worker with lanes waits for (LA2)."""

from __future__ import annotations

import pytest

from signalbox.protocol.parts.lanes import LaneOrders
from worker_svc.core.requests.request_state import RequestTable, SlotStatus
from worker_svc.core.run_ahead import needs_commit_of_lane
from worker_svc.core.step import StepDelta


@pytest.fixture
def table() -> RequestTable:
    """A row of each of two lanes, and a prompt; all of them on their way."""
    table = RequestTable(4, 64, 4, 32, num_lanes=2)
    table.status[:2], table.status[2] = SlotStatus.DECODE, SlotStatus.PREFILL
    table.runs[:2], table.lane[1], table.num_in_flight[:3] = True, 1, 1
    return table


def test_a_row_of_another_lane_is_not_waited_for(table: RequestTable) -> None:
    table.num_in_flight[0] = 0
    assert not needs_commit_of_lane(table, StepDelta(2, 0), [])
    assert needs_commit_of_lane(table, StepDelta(3, 0), [])
    assert needs_commit_of_lane(table, StepDelta(2, 0, orders={LaneOrders: LaneOrders([(1, 0)])}), [])
    assert not needs_commit_of_lane(table, StepDelta(3, 0, paused_slots=[1]), [])


def test_what_is_taken_from_the_way_is_waited_for(table: RequestTable) -> None:
    table.num_in_flight[0] = 0
    assert needs_commit_of_lane(table, StepDelta(2, 0, preempted_slots=[1]), [])


@pytest.mark.parametrize("is_read", [False, True])
def test_a_prompt_that_is_read_is_waited_for(table: RequestTable, is_read: bool) -> None:
    """Whether it goes on, or is forgotten because its client has gone."""
    table.num_in_flight[0], table.reads_prompt[2] = 0, is_read
    assert needs_commit_of_lane(table, StepDelta(2, 0, chunks=[(2, 1, 4)]), []) == is_read
    assert needs_commit_of_lane(table, StepDelta(2, 0, finished_slots=[2]), []) == is_read
