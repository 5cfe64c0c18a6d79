"""What reports tell of time, kept only while somebody watches the board."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from scheduler_svc.core.state.steps.step import StepReport
from scheduler_svc.core.state.worker import Worker

WINDOW_S = 10.0
"""Percentiles are over what came within this time."""
MAX_SAMPLES = 4096
"""And over no more of the newest samples."""
PERCENTILES = (50, 90, 99)


class SampleRing:
    """The newest samples: when each came, its value in seconds, and how many requests saw it."""

    def __init__(self, capacity: int = MAX_SAMPLES) -> None:
        self._samples = np.zeros((capacity, 3))
        self._samples[:, 0] = -np.inf
        self._next = 0

    def add(self, now: float, seconds: float, count: int = 1) -> None:
        """One more, in place of the oldest."""
        self._samples[self._next] = now, seconds, count
        self._next = (self._next + 1) % len(self._samples)

    def percentiles(self, now: float) -> tuple[int, Sequence[float]]:
        """The number of samples within WINDOW_S, and PERCENTILES of them in seconds (none of none)."""
        recent = self._samples[self._samples[:, 0] > now - WINDOW_S]
        if not len(recent):
            return 0, ()
        ordered = recent[np.argsort(recent[:, 1])]
        counts = np.cumsum(ordered[:, 2])
        places = np.searchsorted(counts, counts[-1] * np.array(PERCENTILES) / 100)
        return int(counts[-1]), ordered[places, 1].tolist()


class ReportTimes:
    """Listens to the reports of all workers."""

    def __init__(self) -> None:
        self.first_token = SampleRing()
        """Seconds from the frontend's acceptance to the report with the first token."""
        self.inter_token = SampleRing()
        """Seconds between two reports that brought a running request tokens."""
        self._reported_at: dict[str, float] = {}
        self._spent: dict[str, tuple[int, int]] = {}

    def note(self, worker: Worker, report: StepReport, now: float, wall_ms: float) -> None:
        """A report came, and the core has not taken it in yet. `wall_ms` is Unix time, as in `Request.arrival_ms`."""
        worker_id = worker.info.worker_id
        step_us, model_us = self._spent.get(worker_id, (0, 0))
        self._spent[worker_id] = step_us + report.duration_us, model_us + report.execute_us
        before = self._reported_at.get(worker_id)
        self._reported_at[worker_id] = now
        record = worker.records[0] if worker.records else None
        if record is None or record.step_id != report.step_id:
            return  # the core will say so
        if record.num_decode_rows and before is not None:
            # Reports that were late together came at one time; their steps did not.
            self.inter_token.add(now, max(now - before, report.duration_us / 1e6), record.num_decode_rows)
        not_run = {slot for slot, _ in report.not_run}
        for chunk in record.chunks:
            request = worker.table.requests[chunk.slot]
            if not chunk.is_final or request is None or request.is_pooling or chunk.slot in not_run:
                continue
            if not worker.table.num_output[chunk.slot]:
                self.first_token.add(now, max(wall_ms - request.arrival_ms, 0) / 1e3)

    def keep(self, worker_ids: Collection[str]) -> None:
        """Forgets all other workers: they are gone."""
        for known in (self._reported_at, self._spent):
            for worker_id in known.keys() - set(worker_ids):
                del known[worker_id]

    def take_spent(self, worker_id: str) -> tuple[int, int]:
        """Microseconds of the steps since the last call, and how many of them the model had."""
        return self._spent.pop(worker_id, (0, 0))
