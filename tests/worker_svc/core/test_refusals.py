"""Requests that a worker cannot serve: their frontends are told at once and once, whatever becomes of the link (A4)."""

from __future__ import annotations

import queue
from dataclasses import replace

import pytest

from signalbox.protocol.enums import FinishReason
from signalbox.v1 import generation_pb2, shared_pb2, to_worker_pb2
from tests.worker_svc.core.test_worker_core import INFO, make_core, new, run, start
from worker_svc.core.requests.request_state import SlotStatus
from worker_svc.core.step import Failure, FrontendOutput, StepDelta
from worker_svc.core.worker_core import StepRefusedError, WorkerCore
from worker_svc.runner.sim.model import SimRunner
from worker_svc.steps.loop import StepLoop

FAILURE = Failure("UnsupportedError", "this worker has no adapters", "adapter")
END = [(1, FinishReason.ERROR, 0, FAILURE)]
WAIT_S = 30


def add_refused(core: WorkerCore) -> list[FrontendOutput]:
    return core.add(replace(new(), failure=FAILURE))


def test_a_refusal_is_told_before_any_step() -> None:
    """Z1: there may be no next step; its report tells the scheduler, and the frontend is not told again."""
    core, runner = make_core()
    (output,) = add_refused(core)
    assert output.frontend_instance == "f" and output.finished == END
    report, outputs = run(core, runner, StepDelta(1, 1, started=[start(0, [1, 2], 5)]))
    assert report.finished == [(0, FinishReason.ERROR, 0)] and outputs == []
    report, outputs = run(core, runner, StepDelta(2, 1, finished_slots=[0]))
    assert report.finished == [] and outputs == [] and core.held_slots() == []


@pytest.mark.parametrize("is_refused", [False, True], ids=["no step comes", "the step is refused"])
def test_a_link_that_breaks_loses_no_refusal(is_refused: bool) -> None:
    """J3: the hello says ENDED, and the new scheduler has the slot cleared: that was all that anybody heard of it."""
    core, runner = make_core()
    run(core, runner, StepDelta(1, 1))
    told = add_refused(core)
    if is_refused:
        with pytest.raises(StepRefusedError):
            core.apply(StepDelta(7, 1))
    core.rest()
    assert core.table.status[0] == SlotStatus.ENDED
    report, outputs = run(core, runner, StepDelta(2, 2, finished_slots=[0]))
    assert [output.finished for output in (*told, *outputs)] == [END]
    assert report.finished == []


def test_the_step_loop_hands_a_refusal_on_without_a_step() -> None:
    told: queue.SimpleQueue[list[FrontendOutput]] = queue.SimpleQueue()
    loop = StepLoop(
        WorkerCore(INFO, num_slots=4),
        SimRunner(INFO),
        on_result=lambda result: None,
        on_refused=lambda reason: None,
        on_refusal=told.put,
    )
    loop.start()
    payload = generation_pb2.RequestPayload(token_ids=bytes(20), adapter="other")
    ref = shared_pb2.RequestRef(request_id="r", attempt=3)
    loop.put(
        to_worker_pb2.AttachWorkerResponse(
            new_requests=[
                to_worker_pb2.NewRequestData(
                    ref=ref, num_known_tokens=5, payload=payload.SerializeToString(), frontend_instance="f"
                )
            ]
        )
    )
    (output,) = told.get(timeout=WAIT_S)
    ((attempt, reason, _, failure),) = output.finished
    loop.stop(WAIT_S)
    assert (attempt, reason) == (3, FinishReason.ERROR)
    assert failure is not None and failure.code == "UnsupportedError"
