"""What fails with a step: a request, or the model under all of them."""

from __future__ import annotations

import numpy as np
import pytest

from signalbox.protocol.enums import FinishReason
from tests.worker_svc.core.test_worker_core import INFO, make_core, new, run, start
from worker_svc.core.batch import Batch, BlockCopy, Sampled
from worker_svc.core.faults.isolation import RunnerBrokenError
from worker_svc.core.step import StepDelta
from worker_svc.core.worker_core import WorkerCore
from worker_svc.runner.sim.model import SimRunner


class Counting(SimRunner):
    """Counts its calls, and can bear no prompt with the token 13."""

    def __init__(self) -> None:
        super().__init__(INFO)
        self.num_executed = self.num_checked = 0

    def execute(self, batch: Batch) -> Sampled:
        self.num_executed += 1
        if 13 in batch.token_ids:
            raise RuntimeError("no such luck")
        return super().execute(batch)

    def check(self) -> None:
        self.num_checked += 1


class Lost(Counting):
    """The device is gone."""

    def execute(self, batch: Batch) -> Sampled:
        self.num_executed += 1
        raise RuntimeError("the device was lost")

    def copy_blocks(self, copies: list[BlockCopy]) -> None:
        raise RuntimeError("the device was lost")

    def check(self) -> None:
        raise OSError("there is no device")


def first_step(
    core: WorkerCore, prompts: list[list[int]], copies: list[BlockCopy] | None = None
) -> StepDelta:
    for slot, prompt in enumerate(prompts):
        core.add(new(slot, prompt))
    starts = [start(slot, [slot], len(prompt)) for slot, prompt in enumerate(prompts)]
    return StepDelta(1, 1, started=starts, copies=copies or [])


@pytest.mark.parametrize("num_rows", [1, 4])
def test_a_lost_device_is_no_fault_of_the_requests(num_rows: int) -> None:
    """U2."""
    core, runner = make_core()[0], Lost()
    delta = first_step(core, [[1, 2, 3]] * num_rows)
    with pytest.raises(RunnerBrokenError, match=r"there is no device.*the device was lost"):
        run(core, runner, delta)
    assert runner.num_executed == 1, "it is found out before any row is run again"


def test_a_lost_device_shows_in_copies_too() -> None:
    core, runner = make_core()[0], Lost()
    delta = first_step(core, [[1, 2, 3]], [BlockCopy(0, False, 1, False)])
    with pytest.raises(RunnerBrokenError, match="blocks cannot be copied"):
        run(core, runner, delta)


def test_requests_that_all_break_the_model_fail_and_the_worker_goes_on() -> None:
    core, runner = make_core()[0], Counting()
    report, (output,) = run(core, runner, first_step(core, [[13, 2, 3]] * 3))
    assert [(slot, reason) for slot, reason, _ in report.finished] == [
        (slot, FinishReason.ERROR) for slot in range(3)
    ]
    assert all(failure and "no such luck" in failure.message for *_, failure in output.finished)
    run(core, runner, StepDelta(2, 1, finished_slots=[0, 1, 2]))
    core.add(new(0, [1, 2, 3]))
    report, (output,) = run(core, runner, StepDelta(3, 1, started=[start(0, [0], 3)]))
    assert len(output.token_ids) == 1 and not report.finished


def test_a_culprit_is_found_with_one_check_and_few_executions() -> None:
    """U2."""
    core, runner = WorkerCore(INFO, num_slots=16), Counting()
    prompts = [[13 if slot == 5 else 1, 2, 3] for slot in range(16)]
    report, _ = run(core, runner, first_step(core, prompts))
    assert [slot for slot, *_ in report.finished] == [5]
    assert runner.num_checked == 1 and runner.num_executed == 1 + 2 * np.log2(16)
