"""Rows of a step that made nothing: the model failed on them, or their numbers or masks are bad."""

from __future__ import annotations

import logging

from signalbox.protocol.enums import FinishReason, NotRunReason
from worker_svc.core.acceptance import form_failure
from worker_svc.core.batch import Sampled
from worker_svc.core.faults.bad_streak import BadStreak
from worker_svc.core.requests.automaton import FormEndError
from worker_svc.core.requests.masks import Masks
from worker_svc.core.requests.request_state import RequestTable
from worker_svc.core.running_step import RunningStep
from worker_svc.core.step import Failure

logger = logging.getLogger(__name__)
NOT_FINITE = "the model's numbers for the request are not finite (NaN or infinity)"


class FailedRows:
    """Ends the requests of such rows, and puts it into the step's report."""

    def __init__(self, table: RequestTable, bad_streak: BadStreak) -> None:
        self._table, self._bad_streak = table, bad_streak

    def fail_bad(self, step: RunningStep, sampled: Sampled, failed: dict[int, str]) -> dict[int, str]:
        """Fails the rows that have no finite numbers, and returns them: what they have published is withdrawn."""
        rows = [row for row in sampled.bad_rows.tolist() if row not in failed]
        num_rows, bad = len(step.batch.slots), []
        for row in rows:
            slot = int(step.batch.slots[row])
            ref = self._table.refs[slot]
            assert ref is not None
            logger.warning("request %s of slot %d ends: %s", ref.request_id, slot, NOT_FINITE)
            bad.append(ref)
            step.report.withdrawn_slots.append(slot)
            self._table.withdrawn[slot] = True
            self.fail(step, row, Failure("InternalError", NOT_FINITE))
        if num_rows:
            self._bad_streak.take(bad, num_rows > len({*failed, *sampled.bad_rows.tolist()}))
        return dict.fromkeys(rows, NOT_FINITE)

    def fail_unmasked(self, step: RunningStep, masks: Masks, failed: dict[int, str]) -> dict[int, str]:
        """Ends the rows whose masks could not be made, and returns them. Who is late is known afterwards."""
        masks.bits()  # a model that failed did not wait for them
        failures = {row: error for row, error in masks.failures.items() if row not in failed}
        for row, error in failures.items():
            if isinstance(error, FormEndError):
                self._end(step, row, FinishReason.STOP, None)
            else:
                num_output = self._table.num_output(int(step.batch.slots[row]))
                self.fail(step, row, form_failure(error, num_output))
        return {row: str(error) for row, error in failures.items()}

    def fail(self, step: RunningStep, row: int, failure: Failure) -> None:
        """Ends the request of one row with an error."""
        self._end(step, row, FinishReason.ERROR, failure)

    def _end(self, step: RunningStep, row: int, reason: FinishReason, failure: Failure | None) -> None:
        slot = int(step.batch.slots[row])
        self._table.end(slot, reason, failure)
        step.failed.append(slot)
        report_unused(self._table, step, row, NotRunReason.ERROR)


def report_unused(table: RequestTable, step: RunningStep, row: int, reason: NotRunReason) -> None:
    """Says in the step's report that a row of the batch made nothing."""
    slot = int(step.batch.slots[row])
    if row < step.batch.num_decode_rows:
        step.report.exceptions.append((slot, 0))
        return
    chunk = step.chunks[row - step.batch.num_decode_rows]
    step.report.not_run.append((slot, reason))
    if chunk.start + chunk.length == table.prefill_target[slot]:
        step.report.exceptions.append((slot, 0))
