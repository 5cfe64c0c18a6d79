"""Which steps of the simulated model fail."""

from __future__ import annotations

import faulthandler
import os
import signal
from dataclasses import replace

import pytest

from tests.worker_svc.core.test_worker_core import INFO, PROMPT, make_core, new, start
from worker_svc.core.step import StepDelta
from worker_svc.runner.sim.failures import FailingModel, SimFailures, SimulatedFailureError
from worker_svc.runner.sim.model import SimRunner


def test_the_chosen_step_fails_also_when_it_is_run_again_behind_the_next_one() -> None:
    core, _ = make_core()
    core.add(new())
    batch = core.apply(StepDelta(1, 1, started=[start(0, [3, 1], len(PROMPT))])).batch
    model, failed = FailingModel(SimFailures(fail_step=2)), []
    for step_id in (5, 6, 7, 6, 7, 8):
        try:
            model.check(replace(batch, step_id=step_id))
        except SimulatedFailureError as error:
            failed.append((step_id, str(error)))
    assert failed == [(6, "step 2 was to fail")] * 2


def test_a_lost_device_stays_lost() -> None:
    core, _ = make_core()
    core.add(new())
    batch = core.apply(StepDelta(1, 1, started=[start(0, [3, 1], len(PROMPT))])).batch
    model = FailingModel(SimFailures(break_step=2))
    model.check(batch)
    model.check_device()
    for step_id in (2, 3, 2):
        with pytest.raises(SimulatedFailureError, match="in step 2"):
            model.check(replace(batch, step_id=step_id))
    with pytest.raises(SimulatedFailureError, match="in step 2"):
        model.check_device()


def test_a_crash_comes_with_the_part_of_the_prompt_that_has_the_token() -> None:
    core, _ = make_core()
    core.add(new(prompt=[1, 2, 3, 4, 5, 6, 7, 8]))
    first = core.apply(StepDelta(1, 1, started=[start(0, [3, 1], 4)]))
    runner = SimRunner(INFO, failures=SimFailures(crash_token=7))
    core.commit(first, runner.execute(first.batch), {})
    second = core.apply(StepDelta(2, 1, chunks=[(0, 4, 4)]))
    child = os.fork()
    if not child:
        faulthandler.disable()  # the crash is wanted: nobody should read of it
        runner.execute(second.batch)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSEGV
