"""A step of a burst is skipped for a prompt behind it, and reports may wait for each other: K12, K13."""

from __future__ import annotations

import queue

import numpy as np
import pytest

from signalbox.v1 import from_worker_pb2, generation_pb2, shared_pb2, to_worker_pb2
from tests.worker_svc.core.test_worker_core import INFO, PROMPT, make_core, new, run, start
from worker_svc.core.step import StepDelta
from worker_svc.core.worker_core import WorkerCore
from worker_svc.links.waiting_reports import may_wait
from worker_svc.runner.sim.model import SimRunner, continuation
from worker_svc.steps.loop import StepLoop, StepResult

WAIT_S = 20


def test_rows_of_a_skipped_step_stay_where_they_are() -> None:
    """K12."""
    core, runner = make_core()
    core.add(new(max_tokens=6))
    expected = continuation(PROMPT, 6, 100)
    run(core, runner, StepDelta(1, 1, started=[start(0, [3, 1], 5)]))
    grants = {"grant_slots": np.array([0]), "grant_blocks": np.array([2], np.int32)}
    report, outputs = run(core, runner, StepDelta(2, 1, is_skipped=True, **grants))  # type: ignore[arg-type]
    assert (report.num_decode_rows, outputs, report.not_run) == (1, [], [])
    assert report.decode_counts is not None and report.decode_counts.tolist() == [0]
    assert core.table.num_blocks[0] == 3, "blocks are granted all the same"
    made = [run(core, runner, StepDelta(number, 1))[1][0].token_ids[0] for number in range(3, 8)]
    assert made == expected[1:]


def request(slot: int) -> to_worker_pb2.NewRequestData:
    payload = generation_pb2.RequestPayload(token_ids=np.array(PROMPT, "<i4").tobytes())
    return to_worker_pb2.NewRequestData(
        slot=slot,
        ref=shared_pb2.RequestRef(request_id=f"r{slot}", attempt=1),
        frontend_instance="f",
        payload=payload.SerializeToString(),
        num_known_tokens=len(PROMPT),
        max_tokens=20,
    )


def starting(step_id: int, slot: int, blocks: list[int]) -> to_worker_pb2.SchedulerOutput:
    starts = to_worker_pb2.ScheduledNewReqs(
        slots=np.array([slot], "<u2").tobytes(),
        block_counts=np.array([len(blocks)], "<u4").tobytes(),
        block_ids=np.array(blocks, "<u4").tobytes(),
        num_computed_tokens=np.array([0], "<u4").tobytes(),
        num_scheduled_tokens=np.array([len(PROMPT)], "<u4").tobytes(),
    )
    return to_worker_pb2.SchedulerOutput(step_id=step_id, scheduler_epoch=1, scheduled_new_reqs=starts)


@pytest.mark.parametrize("marked", [True, False])
def test_only_marked_steps_ahead_of_a_start_are_skipped(marked: bool) -> None:
    """K12: the start has arrived before their turn."""
    results = queue.SimpleQueue[StepResult]()
    loop = StepLoop(WorkerCore(INFO, num_slots=4), SimRunner(INFO), results.put, lambda reason: None)
    steps = [starting(1, 0, [0, 1, 2, 3])]
    steps += [
        to_worker_pb2.SchedulerOutput(step_id=number, scheduler_epoch=1, may_be_skipped=marked)
        for number in (2, 3)
    ]
    steps += [starting(4, 1, [4, 5, 6, 7])]
    steps += [to_worker_pb2.SchedulerOutput(step_id=5, scheduler_epoch=1, may_be_skipped=marked)]
    loop.greeted(1, "s")
    loop.put(to_worker_pb2.AttachWorkerResponse(new_requests=[request(0), request(1)], steps=steps))
    loop.start()
    came = [results.get(timeout=WAIT_S) for _ in steps]
    loop.stop(WAIT_S)
    made = [sum(len(output.token_ids) for output in result.outputs) for result in came]
    assert made == ([1, 0, 0, 2, 2] if marked else [1, 1, 1, 2, 2])
    tokens = [t for result in came for output in result.outputs for t in output.token_ids.tolist()]
    assert set(tokens) == set(continuation(PROMPT, max(3, sum(made) - 2), 100))


def test_a_report_waits_only_while_another_is_certain_to_come_in_time() -> None:
    """K13."""
    quiet = from_worker_pb2.ModelRunnerOutput(step_id=5, num_decode_rows=3, sealed_slots=b"\0\0")
    assert may_wait(quiet, 7) and not may_wait(quiet, 6) and not may_wait(quiet, 0)


@pytest.mark.parametrize(
    "more",
    [
        {"finished_slots": b"\0\0"},
        {"num_prefill_tokens": 1},
        {"not_run_slots": b"\0\0"},
        {"withdrawn_slots": b"\0\0"},
        {"draft_slots": b"\0\0"},
    ],
)
def test_a_report_that_says_more_does_not_wait(more: dict[str, object]) -> None:
    assert not may_wait(from_worker_pb2.ModelRunnerOutput(step_id=5, **more), 20)  # type: ignore[arg-type]
