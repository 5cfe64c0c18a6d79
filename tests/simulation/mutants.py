"""Bugs planted on purpose in real code: the simulation has to find each of them, or it proves nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from frontend_svc.requests.sessions.output_origin import OutputOrigin
from frontend_svc.requests.sessions.session import Session
from frontend_svc.requests.sessions.session_table import SessionTable
from scheduler_svc.core.admission.continuation import Continuation
from scheduler_svc.core.cluster.frontends import Frontends
from scheduler_svc.core.cluster.term import Term
from scheduler_svc.core.liveness.judgement import Liveness
from scheduler_svc.core.liveness.settlement import Settlement
from scheduler_svc.core.parts.fetch import host
from scheduler_svc.core.parts.fetch.side_copies import end_fence
from scheduler_svc.core.recovery import snapshot
from scheduler_svc.core.recovery.adoption import Adoption
from scheduler_svc.core.recovery.frontend_desk import FrontendDesk
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.slots.slot_state import SlotState
from scheduler_svc.core.state.slots.table import SlotTable
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step import grammars, prefill_admission, report
from scheduler_svc.core.step.prefix_sharing import Prefix
from signalbox.errors import SignalboxError
from signalbox.links import heartbeat
from signalbox.protocol.enums import FinishReason
from worker_svc.core import worker_core
from worker_svc.core.alone.loan import Loan
from worker_svc.core.alone.terms import Terms
from worker_svc.core.batch_builder import ready_rows
from worker_svc.core.requests.automaton import Automaton
from worker_svc.core.requests.mask_work import MaskWork
from worker_svc.core.requests.request_state import RequestTable
from worker_svc.core.step import I64, StepDelta, StepReport

Patch = pytest.MonkeyPatch
NOTHING = np.empty(0, np.int32)


# -- of what masks cost --


def masks_are_charged_to_nobody(patch: Patch) -> None:
    """Q7: no report names what automata have worked."""
    patch.setattr(MaskWork, "take", lambda work, automata, ended: [])


def masks_of_a_replay_are_charged(patch: Patch) -> None:
    """Q8: what an automaton did for output of an earlier attempt is charged once more."""

    def begin(work: MaskWork, slot: int, automaton: Automaton) -> None:
        work.reported[slot] = 0

    patch.setattr(MaskWork, "begin", begin)


def masks_are_charged_in_every_report(patch: Patch) -> None:
    """Q8: what was named is named again."""
    take = MaskWork.take

    def take_and_keep(
        work: MaskWork, automata: Mapping[int, Automaton], ended: Iterable[int]
    ) -> list[tuple[int, int]]:
        before = dict(work.reported)
        taken = take(work, automata, ended)
        work.reported = before
        return taken

    patch.setattr(MaskWork, "take", take_and_keep)


def masks_are_charged_to_another_slot(patch: Patch) -> None:
    """Q8: work is named by its place among the automata, not by the slot."""
    take = MaskWork.take

    def take_by_place(
        work: MaskWork, automata: Mapping[int, Automaton], ended: Iterable[int]
    ) -> list[tuple[int, int]]:
        return [(place, work_us) for place, (_, work_us) in enumerate(take(work, automata, ended))]

    patch.setattr(MaskWork, "take", take_by_place)


# -- of the scheduler's steps --


def seal_without_generation_check(patch: Patch) -> None:
    """C3: publishes a block although it has been given to somebody else since."""

    def always(worker: Worker, slots: np.ndarray, indexes: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return np.ones(len(slots), np.bool_)

    patch.setattr(report, "still_theirs", always)


def slot_reused_before_its_report(patch: Patch) -> None:
    """K6: frees a slot when its release is sent, not when the step's report is back."""
    name = SlotTable.name_released

    def name_and_free(table: SlotTable) -> list[int]:
        released = name(table)
        for slot in released:
            table.free(slot)
        return released

    patch.setattr(SlotTable, "name_released", name_and_free)
    real = SlotTable.free
    patch.setattr(
        SlotTable, "free", lambda table, slot: real(table, slot) if table.state[slot] == 4 else None
    )


def count_advanced_at_scheduling(patch: Patch) -> None:
    """L2: counts a chunk as computed when it is sent: the placeholder that this design does without."""
    send = prefill_admission.PrefillAdmission._send_chunk

    def send_and_count(admission: prefill_admission.PrefillAdmission, slot: int) -> object:
        chunk, given = send(admission, slot)
        admission.worker.table.num_computed[slot] = chunk.start + chunk.length
        return chunk, given

    patch.setattr(prefill_admission.PrefillAdmission, "_send_chunk", send_and_count)


def news_of_another_attempts_grammar_believed(patch: Patch) -> None:
    """G4: takes a late event for one of whoever holds the slot now."""

    def believe(worker: Worker, slot: int, request_id: str, attempt: int) -> Request | None:
        table = worker.table
        return table.requests[slot] if table.state[slot] == SlotState.PREPARING else None

    patch.setattr(grammars, "_preparing", believe)


def decode_row_behind_a_pooling_request(patch: Patch) -> None:
    """L8: settles a pooling request as if its final chunk had sampled a token."""

    def settle(table: SlotTable, slot: int) -> None:
        table.bound[slot] = table.target[slot] + 1
        table.settling.append(slot)

    patch.setattr(SlotTable, "_settle", settle)


def fence_ended_before_its_copies(patch: Patch) -> None:
    """X3: gives blocks away while they are copied beside the steps."""
    copy_aside = host.copy_aside

    def copy_and_end(
        worker: Worker, request: Request, prefix: Prefix, num_new: int, step: StepDecision
    ) -> None:
        copy_aside(worker, request, prefix, num_new, step)
        end_fence(worker, step.step_id, failed=False)

    patch.setattr(host, "copy_aside", copy_and_end)


# -- of identities --


def outputs_forget_who_began_them(patch: Patch) -> None:
    """I9: an attempt that follows another does not say which identity made the output so far."""
    patch.setattr(OutputOrigin, "begin_attempt", lambda origin, num_output_tokens: None)


def outputs_go_on_anywhere(patch: Patch) -> None:
    """I9: the scheduler places an output that has begun on workers of any identity."""
    patch.setattr(Continuation, "may_take", lambda self, worker, request, now: True)


# -- of bursts --


def skipped_rows_count(patch: Patch) -> None:
    """K12: reports a step that was skipped as if its rows had made their tokens."""

    def all_made(table: RequestTable, rows: I64, report: StepReport, *, is_skipped: bool = False) -> I64:
        return rows[:0] if is_skipped else ready_rows(table, rows, report)

    patch.setattr(worker_core, "ready_rows", all_made)


def grants_of_skipped_steps_are_lost(patch: Patch) -> None:
    """K12: skips the whole of a step, and not its rows alone."""
    apply_changes = worker_core.apply_changes

    def apply(table: RequestTable, delta: StepDelta, *others: Any) -> Any:
        if delta.is_skipped:
            delta = replace(delta, grant_slots=delta.grant_slots[:0], grant_blocks=delta.grant_blocks[:0])
        return apply_changes(table, delta, *others)

    patch.setattr(worker_core, "apply_changes", apply)


# -- of links and graces --


def removed_worker_keeps_requests(patch: Patch) -> None:
    """Forgets a worker that is gone, and not its requests (E5)."""
    patch.setattr(Liveness, "lose_all", lambda liveness, worker, departure: None)


def gone_frontend_is_kept(patch: Patch) -> None:
    """Never forgets a frontend, and lets its requests run on."""
    patch.setattr(Frontends, "take_gone", lambda frontends, now: [])


def no_start_grace(patch: Patch) -> None:
    """I4: calls requests lost before the workers that may have them have spoken."""
    patch.setattr(Settlement, "is_settled", lambda settlement, frontend, process, named_at, now: True)


# -- of workers that are alone --


def loan_outlives_its_blocks(patch: Patch) -> None:
    """Uses lent blocks that a step has given to somebody since (A3)."""
    patch.setattr(Loan, "withdraw", lambda loan, delta: None)
    patch.setattr(Loan, "settle", lambda loan, table: None)


def blocks_written_alone_are_trusted(patch: Patch) -> None:
    """Hits blocks by what they held before a worker without a scheduler wrote into them (A5)."""
    keep = snapshot.keep_cache

    def trust(worker: Worker, old: Worker, last: int, written: np.ndarray) -> None:  # type: ignore[type-arg]
        keep(worker, old, last, NOTHING)

    patch.setattr(snapshot, "keep_cache", trust)


# -- of who is told and who is believed --


def orphans_of_its_own_are_adopted(patch: Patch) -> None:
    """Takes a request in again that it has placed itself, and that has ended (T3)."""
    begin = Adoption.__init__

    def begin_as_anothers(adoption: Adoption, *given: object) -> None:
        begin(adoption, *given)  # type: ignore[arg-type]
        adoption._is_own = False

    patch.setattr(Adoption, "__init__", begin_as_anothers)


def terms_of_others_are_obeyed(patch: Patch) -> None:
    """Nobody raises a term, and workers take any (T1)."""
    patch.setattr(Term, "meet", lambda term, number, instance="": False)
    patch.setattr(Terms, "refusal_of", lambda terms, term, instance: None)


def questions_are_not_answered(patch: Patch) -> None:
    """Ignores frontends that ask whether a request is still to come (F5)."""
    patch.setattr(FrontendDesk, "check", lambda desk, *named: None)


def requests_of_gone_frontends_go_on(patch: Patch) -> None:
    """Forgets a frontend, and lets its requests run."""

    def let_go(desk: FrontendDesk, now: float) -> None:
        desk._frontends.take_gone(now)

    patch.setattr(FrontendDesk, "let_go", let_go)


def silence_is_judged_behind_a_stall(patch: Patch) -> None:
    """Judges by a clock that stood still itself (H3)."""
    patch.setattr(heartbeat, "STALL_S", math.inf)


def old_attempts_are_believed(patch: Patch) -> None:
    """Takes what comes of an attempt that was given up (E10)."""

    def keep_both(table: SessionTable, session: Session) -> None:
        table._last_attempt += 1
        session.attempt = table._last_attempt
        table._by_attempt[session.attempt] = session

    patch.setattr(SessionTable, "renumber", keep_both)
    patch.setattr(Session, "_is_current", lambda session, attempt: not session.ended)


def limits_end_what_was_accepted(patch: Patch) -> None:
    """Ends a request that was accepted once when a limit refuses its next attempt (F3)."""

    def refuse(session: Session, attempt: int, error: SignalboxError) -> None:
        if session._is_current(attempt):
            session._end(FinishReason.ERROR, error=error)

    patch.setattr(Session, "on_rejected", refuse)
