"""Waits for masks are in no part of a step that says how fast the worker is (docs/liveness.md, E7, E8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from unittest.mock import Mock

import numpy as np
import pytest

from scheduler_svc.core.liveness.slowness import SLOW_RATIO
from scheduler_svc.core.state.steps.pace import RECENT_S, Pace, Work
from scheduler_svc.links.codec.delta import parse_report
from signalbox.v1.from_worker_pb2 import ModelRunnerOutput
from tests.worker_svc.core.test_constrained_rows import ENTRY, FORM, INFO, PROMPT, Ladder, MaskedSim
from worker_svc.core.batch import Batch, Sampled
from worker_svc.core.requests.masks import MaskJob
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.core.step import NewRequest, RequestRef, SlotStart, StepDelta
from worker_svc.core.worker_core import WorkerCore
from worker_svc.steps.engine import Listeners, StepEngine, Surroundings
from worker_svc.steps.items import ArrivedStep

MODEL_S, WAIT_S, EMPTY_S = 0.001, 0.02, 0.01


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


class SlowMasks:
    """A `MaskMaker` for whose masks each step waits, for as long as a step may; `is_late`: in vain."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.is_late = clock, False

    def begin(self, jobs: Sequence[MaskJob]) -> None:
        for job in jobs:
            job.is_begun = True

    def wait(self, jobs: Sequence[MaskJob]) -> None:
        self.clock.now += WAIT_S
        for job in jobs if not self.is_late else ():
            job.run()
            job.finish()

    def wait_for_one(self, jobs: Sequence[MaskJob]) -> None:
        self.clock.now += EMPTY_S


class TimedSim(MaskedSim):
    """Each step takes MODEL_S."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(INFO)
        self.clock = clock

    def execute(self, batch: Batch) -> Sampled:
        self.clock.now += MODEL_S * bool(len(batch.slots))
        return super().execute(batch)


class Worker:
    """An engine whose one request follows a form, step by step."""

    def __init__(self) -> None:
        self.clock, self.reports = Clock(), list[ModelRunnerOutput]()
        self.masks, self._core = SlowMasks(self.clock), WorkerCore(INFO, num_slots=4)
        around = Surroundings(self.clock, Mock(), Mock(age_s=0.0), masks=self.masks)
        listeners = Listeners(lambda result: self.reports.append(result.report), Mock(), Mock(), Mock())
        self._engine = StepEngine(self._core, TimedSim(self.clock), around, listeners)
        self._number = 0
        ref = RequestRef("r", 1, "f")
        request = NewRequest(0, ref, np.array(PROMPT, np.int32), 0, 40, SamplingParams(), b"", form=FORM)
        self._core.add(request)
        assert self._core.take_grammar(0, ref, Ladder([*ENTRY] * 5))
        self.step(started=[SlotStart(0, np.arange(16, dtype=np.int32), 0, len(PROMPT))])

    def step(self, **changes: object) -> ModelRunnerOutput:
        self._number += 1
        delta = StepDelta(self._number, 1, **changes)  # type: ignore[arg-type]
        arrived = ArrivedStep.own(delta, self.clock())
        assert not self._engine.must_finish_before(arrived)
        self._engine.take(arrived)
        self._engine.finish_all()
        return self.reports[-1]


def parts_us(report: ModelRunnerOutput) -> tuple[int, int]:
    """What says how fast the worker is, and what does not."""
    return parse_report(report).duration_us, report.timings.masks_us


def test_a_wait_for_a_mask_is_a_part_of_its_own() -> None:
    worker = Worker()
    for _ in range(3):
        duration_us, masks_us = parts_us(worker.step())
        assert duration_us == pytest.approx(1e6 * MODEL_S, abs=2)
        assert masks_us == pytest.approx(1e6 * WAIT_S, abs=2)


def test_an_empty_step_that_waits_for_a_late_mask_has_taken_no_time() -> None:
    worker = Worker()
    worker.masks.is_late = True
    worker.step()
    duration_us, masks_us = parts_us(worker.step())
    assert duration_us <= 2
    assert masks_us == pytest.approx(1e6 * EMPTY_S, abs=2)


def test_a_worker_that_waits_for_masks_is_not_called_slow() -> None:
    """Its own long run is of steps without forms. What took the clock's time would be 20 times as long."""
    worker, pace, now = Worker(), Pace(), 0.0
    seconds = [MODEL_S] * 400
    seconds += [parse_report(worker.step()).duration_us / 1e6 for _ in range(30)]
    for number, busy_s in enumerate(seconds):
        now += 0.25
        pace.look(Work(1, 1, 10, busy_s), now)
        assert (pace.ratio(now) or 0.0) < SLOW_RATIO / 2, f"step {number}"
    assert now - 30 * 0.25 > RECENT_S, "the long run is known"
