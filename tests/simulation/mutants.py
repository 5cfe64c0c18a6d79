"""Bugs planted on purpose in real code: the simulation has to find each of them, or it proves nothing."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler_svc.core import report_reader, starts, step_builder
from scheduler_svc.core.frontends import Frontends
from scheduler_svc.core.liveness import Liveness
from scheduler_svc.core.missing import Missing
from scheduler_svc.core.prefix_sharing import Prefix
from scheduler_svc.core.request import Request
from scheduler_svc.core.request_table import RequestTable, SlotState
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.side_copies import end_fence
from scheduler_svc.core.step import Chunk, StepDecision
from scheduler_svc.core.worker import Worker
from worker_svc.core.loan import Loan

Patch = pytest.MonkeyPatch
NOTHING = np.empty(0, np.int32)


# -- of the scheduler's steps --


def seal_without_generation_check(patch: Patch) -> None:
    """Publishes a block although it has been given to somebody else since."""

    def always(worker: Worker, slots: np.ndarray, indexes: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return np.ones(len(slots), np.bool_)

    patch.setattr(report_reader, "still_theirs", always)


def slot_reused_before_its_report(patch: Patch) -> None:
    """Frees a slot when its release is sent, not when the step's report is back."""
    release = step_builder.release_ended

    def release_and_free(worker: Worker, step: StepDecision) -> None:
        release(worker, step)
        for slot in step.finished_slots:
            worker.table.free(slot)

    patch.setattr(step_builder, "release_ended", release_and_free)
    real = RequestTable.free
    patch.setattr(
        RequestTable, "free", lambda table, slot: real(table, slot) if table.state[slot] == 4 else None
    )


def count_advanced_at_scheduling(patch: Patch) -> None:
    """Counts a chunk as computed when it is sent: the placeholder that this design does without."""
    send = starts.Starter._send_chunk

    def send_and_count(starter: starts.Starter, slot: int) -> Chunk:
        chunk = send(starter, slot)
        starter._worker.table.num_computed[slot] = chunk.start + chunk.length
        return chunk

    patch.setattr(starts.Starter, "_send_chunk", send_and_count)


def news_of_another_attempts_grammar_believed(patch: Patch) -> None:
    """Takes a late event for one of whoever holds the slot now."""

    def believe(
        scheduler: Scheduler, worker_id: str, slot: int, request_id: str, attempt: int
    ) -> Request | None:
        table = scheduler.workers[worker_id].table
        return table.requests[slot] if table.state[slot] == SlotState.PREPARING else None

    patch.setattr(Scheduler, "_preparing", believe)


def decode_row_behind_a_pooling_request(patch: Patch) -> None:
    """Settles a pooling request as if its final chunk had sampled a token."""

    def settle(worker: Worker, slot: int) -> None:
        worker.table.bound[slot] = worker.table.target[slot] + 1
        worker.settling.append(slot)

    patch.setattr(Worker, "settle", settle)


def fence_ended_before_its_copies(patch: Patch) -> None:
    """Gives blocks away while they are copied beside the steps."""
    copy_aside = starts.copy_aside

    def copy_and_end(worker: Worker, slot: int, prefix: Prefix, num_new: int, step: StepDecision) -> None:
        copy_aside(worker, slot, prefix, num_new, step)
        end_fence(worker, step.step_id, failed=False)

    patch.setattr(starts, "copy_aside", copy_and_end)


# -- of links and graces --


def removed_worker_keeps_requests(patch: Patch) -> None:
    """Forgets a worker that is gone, and not its requests (E5)."""
    patch.setattr(Liveness, "lose_all", lambda liveness, worker, departure: None)


def gone_frontend_is_kept(patch: Patch) -> None:
    """Never forgets a frontend, and lets its requests run on."""
    patch.setattr(Frontends, "take_gone", lambda frontends, now: [])


def no_start_grace(patch: Patch) -> None:
    """Calls requests lost before the workers that may have them have spoken."""
    patch.setattr(Missing, "_is_settled", lambda missing, asked, now: True)
    take = Missing.take_lost
    patch.setattr(
        Missing, "take_lost", lambda missing, requests, attached, now: take(missing, requests, True, now)
    )


# -- of workers that are alone --


def loan_outlives_its_blocks(patch: Patch) -> None:
    """Uses lent blocks that a step has given to somebody since (A3)."""
    patch.setattr(Loan, "withdraw", lambda loan, delta: None)
    patch.setattr(Loan, "settle", lambda loan, table: None)
