"""Which reports may wait for the next, so that several travel in one message."""

from __future__ import annotations

from signalbox.v1 import from_worker_pb2


def may_wait(report: from_worker_pb2.ModelRunnerOutput, newest_step_id: int) -> bool:
    """Nobody needs `report` now: it tells of decoding alone, and two steps at least have arrived behind it, so that
    another report is certain to come before there is nothing left to run. Step ids follow each other without a gap."""
    says_more = (
        report.num_prefill_tokens
        or report.finished_slots
        or report.not_run_slots
        or report.withdrawn_slots
        or report.draft_slots
    )
    return not says_more and newest_step_id - report.step_id >= 2
