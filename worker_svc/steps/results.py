"""What steps came to: one, and all since the start."""

from __future__ import annotations

from dataclasses import dataclass

from signalbox.v1 import from_worker_pb2
from worker_svc.core.step import FrontendOutput


@dataclass
class StepResult:
    """What a step came to."""

    report: from_worker_pb2.ModelRunnerOutput
    outputs: list[FrontendOutput]
    is_own: bool = False
    """The worker authored the step: there is nobody to report it to."""


@dataclass
class StepTotals:
    """All steps since the start, for metrics."""

    num_steps: int = 0
    num_own: int = 0
    """Steps of them that were made without a scheduler."""
    queued_us: int = 0
    prepare_us: int = 0
    execute_us: int = 0
    commit_us: int = 0
    masks_us: int = 0

    def add(self, timings: from_worker_pb2.StepTimings, *, is_own: bool) -> None:
        """Adds the timings of one more step."""
        self.num_steps += 1
        self.num_own += is_own
        self.queued_us += timings.queued_us
        self.prepare_us += timings.prepare_us
        self.execute_us += timings.execute_us
        self.commit_us += timings.commit_us
        self.masks_us += timings.masks_us
