"""Rows whose numbers are not finite fail their request alone; several without a good one end the worker (N1 to N3)."""

from __future__ import annotations

import numpy as np
import pytest

from signalbox.protocol.enums import FinishReason, NotRunReason
from tests.simulation.ahead import AheadSimRunner
from tests.worker_svc.core.test_worker_core import INFO, new, run, start
from worker_svc.core.batch import Batch, Sampled
from worker_svc.core.faults.isolation import execute_isolated
from worker_svc.core.faults.unfit import UnfitError
from worker_svc.core.step import StepDelta, StepReport
from worker_svc.core.steps_in_flight import StepsInFlight
from worker_svc.core.worker_core import WorkerCore
from worker_svc.links import delta
from worker_svc.runner.sim.failures import SimFailures
from worker_svc.runner.sim.model import SimRunner, continuation

BAD = 13
POISON = [1, 2, 3, 4, 5, BAD]
GOOD = [4, 5, 6]


def make(limit: int = 3) -> tuple[WorkerCore, SimRunner]:
    core = WorkerCore(INFO, num_slots=4, bad_row_limit=limit)
    return core, SimRunner(INFO, failures=SimFailures(nan_token=BAD))


def test_a_bad_row_fails_alone_and_what_it_published_is_withdrawn() -> None:
    """N1, N2: nothing of it counts, and its neighbours go on."""
    core, runner = make()
    core.add(new(0, GOOD))
    core.add(new(1, POISON))
    first = StepDelta(1, 1, started=[start(0, [0, 1], 3), start(1, [2, 3], 4)])
    report, _ = run(core, runner, first)
    assert report.withdrawn_slots == [], "the part of the prompt that was computed had numbers"
    report, (output,) = run(core, runner, StepDelta(2, 1, chunks=[(1, 4, 2)]))
    assert report.withdrawn_slots == [1]
    assert report.not_run == [(1, NotRunReason.ERROR)] and report.exceptions == [(1, 0)]
    assert report.finished == [(1, FinishReason.ERROR, 0)]
    ((attempt, reason, count, failure),) = output.finished
    assert (attempt, reason, count) == (2, FinishReason.ERROR, 0)
    assert failure is not None and failure.code == "InternalError" and "not finite" in failure.message
    assert output.token_ids.tolist() == continuation(GOOD, 2, 100)[1:]
    core.bad_streak.check()


def test_a_chunk_without_a_token_is_looked_at() -> None:
    """N1: else its blocks would be published, and whoever shares them would be the one who fails."""
    core, runner = make()
    core.add(new(0, [BAD, 1, 2, 3, 4, 5, 6, 7]))
    report, (output,) = run(core, runner, StepDelta(1, 1, started=[start(0, [0, 1], 4)]))
    assert report.withdrawn_slots == [0] and report.sealed_slots == []
    assert report.not_run == [(0, NotRunReason.ERROR)] and report.exceptions == []
    assert [reason for _, reason, _, _ in output.finished] == [FinishReason.ERROR]


class DecodesBadly(AheadSimRunner):
    """From some step on, a decode row of one slot has no numbers."""

    def __init__(self, slot: int, first_step: int) -> None:
        super().__init__(INFO)
        self._slot, self._first_step = slot, first_step

    def execute(self, batch: Batch) -> Sampled:
        return self._spoil(super().execute(batch), batch)

    def run(self, launched) -> Sampled:  # type: ignore[no-untyped-def]
        return self._spoil(super().run(launched), launched.batch)

    def _spoil(self, sampled: Sampled, batch: Batch) -> Sampled:
        if batch.step_id >= self._first_step:
            sampled.bad_rows = np.flatnonzero(batch.slots == self._slot).astype(np.int32)
        return sampled


def test_a_bad_row_that_was_overrun_by_the_next_step_fails_once() -> None:
    """N1 where steps run ahead: the row behind it is one of a request that has ended."""
    core, runner = WorkerCore(INFO, num_slots=4), DecodesBadly(1, first_step=3)
    flights = StepsInFlight(core.table, runner, lambda copies: None)
    for slot in range(2):
        core.add(new(slot, GOOD))
    steps = {1: StepDelta(1, 1, started=[start(0, [0, 1, 2], 3), start(1, [3, 4, 5], 3)])}
    reports: list[StepReport] = []
    for number in range(1, 6):
        step_delta = steps.get(number, StepDelta(number, 1))
        while flights.is_full or (len(flights) and core.has_to_wait(step_delta)):
            reports.append(core.commit(*flights.collect())[0])
        flights.start(core.apply(step_delta))
    while len(flights):
        reports.append(core.commit(*flights.collect())[0])
    assert runner.num_ahead
    assert [report.step_id for report in reports if report.withdrawn_slots] == [3]
    assert [report.finished for report in reports if report.finished] == [[(1, FinishReason.ERROR, 2)]]
    core.table.check_integrity()


def test_bad_rows_keep_their_place_when_a_batch_is_halved() -> None:
    """Beside a row that raises, which has the batch run again in parts."""
    core = WorkerCore(INFO, num_slots=4)
    runner = SimRunner(INFO, failures=SimFailures(nan_token=BAD, fail_token=17))
    prompts = [GOOD, [17, 1, 2], GOOD, POISON]
    for slot, prompt in enumerate(prompts):
        core.add(new(slot, prompt))
    starts = [start(slot, [2 * slot, 2 * slot + 1], len(prompt)) for slot, prompt in enumerate(prompts)]
    step = core.apply(StepDelta(1, 1, started=starts))
    sampled, failed = execute_isolated(runner, step.batch)
    assert sampled.bad_rows.tolist() == [3] and list(failed) == [1]
    report, _ = core.commit(step, sampled, failed)
    assert report.withdrawn_slots == [3] and sorted(slot for slot, *_ in report.finished) == [1, 3]


def run_alone(core: WorkerCore, runner: SimRunner, step_id: int, slot: int, prompt: list[int]) -> None:
    """A step with this request only."""
    core.add(new(slot, prompt, max_tokens=1))
    run(core, runner, StepDelta(step_id, 1, started=[start(slot, [2 * slot, 2 * slot + 1], len(prompt))]))


def test_bad_rows_of_several_requests_without_a_good_one_end_the_worker() -> None:
    """N3"""
    core, runner = make(limit=3)
    for number in (1, 2):
        run_alone(core, runner, number, number, POISON)
        core.bad_streak.check()
    run_alone(core, runner, 3, 3, POISON)
    with pytest.raises(UnfitError, match="3 requests"):
        core.bad_streak.check()


def test_a_good_row_between_clears_the_worker() -> None:
    """N3: the requests are to blame, not the device."""
    core, runner = make(limit=2)
    for number, prompt in enumerate((POISON, GOOD, POISON)):
        run_alone(core, runner, number + 1, number, prompt)
        core.bad_streak.check()


def test_the_scheduler_is_told_in_columns() -> None:
    message = delta.build_report(StepReport(1, withdrawn_slots=[1, 258]))
    assert message.withdrawn_slots == bytes([1, 0, 2, 1])
