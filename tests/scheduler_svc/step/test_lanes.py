"""Steps as turns of lanes, in the scheduler alone (LA)."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler_svc.core.liveness.judgement import rows_of_step
from scheduler_svc.core.recovery.snapshot import SnapshotError, WorkerSnapshot
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.steps.step import StepDecision
from signalbox.protocol.enums import FinishReason
from signalbox.protocol.parts.lanes import LaneOrders
from tests.scheduler_svc.harness import WORKER, make_info, make_request, make_slot, report_for


def with_lanes(num_lanes: int, **settings: object) -> Scheduler:
    """A scheduler with one worker."""
    scheduler = Scheduler(SchedulerConfig(**settings), epoch=1, now=0.0)  # type: ignore[arg-type]
    scheduler.attach_worker(make_info(num_lanes=num_lanes), None, 0.0)
    return scheduler


def run(scheduler: Scheduler, finished: tuple[tuple[int, int, int], ...] = ()) -> StepDecision:
    """One step, reported at once."""
    step = scheduler.schedule(WORKER, 0.0)
    assert step is not None
    scheduler.update(WORKER, report_for(scheduler, finished), 0.0)
    scheduler.check_integrity()
    return step


def rows(scheduler: Scheduler) -> list[int]:
    """How many rows each lane has."""
    return [len(lane.slots) for lane in scheduler.workers[WORKER].table.lanes]


def test_a_row_runs_in_the_turns_of_the_lane_of_its_final_chunk() -> None:
    """LA1, LA4: the steps in between are sent, and have nothing in them."""
    scheduler = with_lanes(4)
    scheduler.submit(make_request("a", 9), 0.0)
    first = run(scheduler)
    assert first.started[0].chunk.is_final
    steps = [run(scheduler) for _ in range(8)]
    assert [step.num_decode_rows for step in steps] == [0, 0, 0, 1, 0, 0, 0, 1]
    assert [step.passes for step in steps] == [True, True, True, False] * 2


def test_each_lane_has_a_step_in_flight_more() -> None:
    """LA3: and nothing is sent where no lane has anything."""
    scheduler = with_lanes(4, max_inflight_steps=2)
    assert scheduler.schedule(WORKER, 0.0) is None
    scheduler.submit(make_request("a", 9), 0.0)
    sent = 0
    while scheduler.schedule(WORKER, 0.0) is not None:
        sent += 1
    assert sent == 5


def test_lanes_are_made_even_in_the_turn_of_the_fullest() -> None:
    """LA5: six prompts end in one step; the rows are shared out in its lane's next turn, each named once."""
    scheduler = with_lanes(3)
    for number in range(6):
        scheduler.submit(make_request(f"r{number}", 9), 0.0)
    run(scheduler)
    assert run(scheduler).ordered(LaneOrders) is run(scheduler).ordered(LaneOrders) is None
    assert sorted(rows(scheduler)) == [0, 0, 6]
    step = run(scheduler)
    assert (step.num_decode_rows, len(step.order(LaneOrders).changes)) == (2, 4)
    assert rows(scheduler) == [2, 2, 2]
    slot = int(scheduler.workers[WORKER].table.turn.slots[0])
    assert run(scheduler, ((slot, FinishReason.STOP, 2),)).ordered(LaneOrders) is None
    for _ in range(6):
        run(scheduler)
    assert sorted(rows(scheduler)) == [1, 2, 2], "a difference of one is left"


def test_a_snapshot_says_whose_lane_a_row_is_of() -> None:
    """LA6: and one that names a lane that there is not is no snapshot."""
    scheduler = Scheduler(SchedulerConfig(), epoch=2, now=0.0)
    held = make_slot(request=make_request("long", 30, max_tokens=100), lane=2)
    scheduler.attach_worker(make_info(num_lanes=3, num_slots=16), WorkerSnapshot(1, 7, [held]), 0.0)
    scheduler.check_integrity()
    assert rows(scheduler) == [0, 0, 1]
    assert np.flatnonzero(scheduler.workers[WORKER].table.lanes[2].advance).tolist() == [0]
    stray = make_slot(lane=3)
    with pytest.raises(SnapshotError, match="it is of lane 3, of 3"):
        scheduler.attach_worker(make_info(num_lanes=3), WorkerSnapshot(1, 7, [stray]), 0.0)


@pytest.mark.parametrize(("num_lanes", "is_chunked"), [(4, True), (4, False), (1, True)])
def test_prompts_are_cut_for_the_stages(num_lanes: int, is_chunked: bool) -> None:
    """LA7: into parts of what is left, that become smaller; a prompt that must not be cut, or where there is one lane,
    has the whole budget."""
    scheduler = Scheduler(
        SchedulerConfig(max_num_batched_tokens=4096, enable_chunked_prefill=is_chunked), epoch=1, now=0.0
    )
    scheduler.attach_worker(make_info(num_lanes=num_lanes, num_blocks=1024), None, 0.0)
    scheduler.submit(make_request("a", 3200), 0.0)
    lengths = [run(scheduler).started[0].chunk.length]
    while sum(lengths) < 3200:
        (chunk,) = run(scheduler).chunks
        lengths.append(chunk.length)
    if num_lanes == 1 or not is_chunked:
        assert lengths == [3200]
        return
    assert lengths[:2] == [200, 188] and lengths[-2] == 64
    assert lengths == sorted(lengths, reverse=True)


@pytest.mark.parametrize("num_lanes", [1, 2])
def test_who_was_on_the_way_may_have_crashed_the_worker(num_lanes: int) -> None:
    """S1: with two stages the step that ran, and the one behind it; not what had yet to begin."""
    scheduler = with_lanes(num_lanes, max_num_batched_tokens=64, max_num_seqs=8, max_inflight_steps=4)
    for number in range(3):
        scheduler.submit(make_request(f"r{number}", 64), 0.0)
        assert scheduler.schedule(WORKER, 0.0) is not None
    worker = scheduler.workers[WORKER]
    of_steps = [
        {*record.decode_slots.tolist(), *(chunk.slot for chunk in record.chunks)} for record in worker.records
    ]
    assert of_steps[0] < set().union(*of_steps[:2]) < set().union(*of_steps), "each step has another row"
    assert rows_of_step(worker) == set().union(*of_steps[:num_lanes])
    assert rows_of_step(worker, worker.records[1].step_id) == set().union(*of_steps[1 : 1 + num_lanes])
