"""Bugs planted on purpose in real code: the simulation has to find each of them, or it proves nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frontend_svc.session import Session
from frontend_svc.sessions import SessionTable
from scheduler_svc.core import kept_cache, recovery, report_reader, starts, step_builder
from scheduler_svc.core.frontends import Frontends
from scheduler_svc.core.liveness import Liveness
from scheduler_svc.core.missing import Missing
from scheduler_svc.core.prefix_sharing import Prefix
from scheduler_svc.core.request import Request
from scheduler_svc.core.request_table import RequestTable, SlotState
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.side_copies import end_fence
from scheduler_svc.core.step import Chunk, StepDecision
from scheduler_svc.core.term import Term
from scheduler_svc.core.worker import Worker
from signalbox.heartbeat import Silence
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


def own_orphans_adopted(patch: Patch) -> None:
    """Takes requests in that this scheduler itself placed, and has seen end since (T3)."""
    patch.setattr(Term, "is_own", lambda term, instance: False)


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


def paused_of_hello_ignored(patch: Patch) -> None:
    """Has slow clients' requests run on after a hello."""
    attach = Frontends.attach
    patch.setattr(Frontends, "attach", lambda known, name, live, paused: attach(known, name, live, []))
    real = Scheduler.attach_frontend

    def forget_pauses(scheduler: Scheduler, instance: str, live: Any, paused: Any, *rest: Any) -> None:
        real(scheduler, instance, live, [], *rest)

    patch.setattr(Scheduler, "attach_frontend", forget_pauses)


def checks_unanswered(patch: Patch) -> None:
    """Does not answer a frontend that asks whether its request is still to come."""
    patch.setattr(Scheduler, "check", lambda *args: None)


def silence_of_a_stopped_clock(patch: Patch) -> None:
    """Judges others by a clock that has stood still itself (H3)."""

    def is_silent(silence: Silence, now: float) -> bool:
        return now - silence._heard_at >= silence._limit_s

    patch.setattr(Silence, "is_silent", is_silent)


# -- of frontends --


def old_attempts_accepted(patch: Patch) -> None:
    """Takes tokens of an attempt that was given up (E10)."""
    renumber = SessionTable.renumber

    def renumber_and_keep(table: SessionTable, session: Session) -> None:
        older = session.attempt
        renumber(table, session)
        if older:
            table._by_attempt[older] = session

    patch.setattr(SessionTable, "renumber", renumber_and_keep)
    patch.setattr(Session, "_is_current", lambda session, attempt: not session.ended)
    forget = SessionTable.forget

    def forget_all(table: SessionTable, session: Session) -> None:
        forget(table, session)
        for attempt in [a for a, other in table._by_attempt.items() if other is session]:
            del table._by_attempt[attempt]

    patch.setattr(SessionTable, "forget", forget_all)


def limit_ends_what_was_accepted(patch: Patch) -> None:
    """Ends an attempt that a limit refuses, though its request was accepted once (F3, W2)."""
    real = Session.on_rejected

    def reject(session: Session, attempt: int, error: Any) -> None:
        session.losses.num_losses, kept = 0, session.losses.num_losses
        real(session, attempt, error)
        session.losses.num_losses = kept

    patch.setattr(Session, "on_rejected", reject)


# -- of workers that are alone --


def loan_outlives_its_blocks(patch: Patch) -> None:
    """Uses lent blocks that a step has given to somebody since (A3)."""
    patch.setattr(Loan, "withdraw", lambda loan, delta: None)
    patch.setattr(Loan, "settle", lambda loan, table: None)


def written_alone_is_trusted(patch: Patch) -> None:
    """Takes the content of blocks that were written alone for what it was (A5)."""
    keep = kept_cache.keep_cache

    def keep_all(worker: Worker, old: Worker, last_step_id: int, written_alone: Any) -> None:
        keep(worker, old, last_step_id, NOTHING)

    patch.setattr(recovery, "keep_cache", keep_all)
