"""Requests that may have caused a crash run in steps of their own, alone in flight (docs/liveness.md, S2).

A suspect is known by `num_crashes`, until its first new token (S3): so it has prompt chunks, and is never a decode row.
Its steps and those of all others take turns. Others are paused on the worker for one step: to our table that step is
nothing but a chunk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import numpy as np

from scheduler_svc.core.cluster.register import Register
from scheduler_svc.core.queue.waiting_cursor import WaitingCursor
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.groups.checkpoints import NO_CHECKPOINT
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.steps.step import NO_SLOTS, StepDecision, StepRecord, StepReport
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step.gates import OF_TURN, first_closed
from scheduler_svc.core.step.prefill_admission import PrefillAdmission

RETRY_STEPS = 8
"""Steps of others before a suspect is tried again that could not go on."""
Build = Callable[[], StepDecision]


def placed_suspects(worker: Worker, suspects: Iterable[Request]) -> frozenset[int]:
    """Slots of those that the worker has."""
    name = worker.info.worker_id
    return frozenset(r.slot for r in suspects if r.worker_id == name and r.slot is not None)


def may_offer(request: Request) -> bool:
    """A waiting suspect that starts with a step; one with a grammar is placed like all others, and starts later."""
    return request.num_crashes > 0 and not request.has_grammar


def absolve(worker: Worker, record: StepRecord, report: StepReport, register: Register) -> None:
    """A suspect has run alone: with a new token it is like all others (S3)."""
    not_run = {slot for slot, _ in report.not_run}
    for chunk in record.chunks:
        request = worker.table.requests[chunk.slot]
        if chunk.is_final and chunk.slot not in not_run and request is not None:
            register.absolve(request)


def take_turns(
    worker: Worker, slots: frozenset[int], *, is_offered: bool, solo: Build, usual: Build
) -> StepDecision:
    """The next step: a suspect's, or one of all others. Empty: none now. `slots` are those of suspects on the worker;
    `is_offered`: others wait that it might take."""
    nothing = StepDecision(worker.next_step_id)
    if worker.records and worker.records[-1].is_solo:
        return nothing
    wants = _is_there_one(worker, slots, is_offered) and worker.next_step_id >= worker.no_suspect_before
    if wants and worker.records:
        return nothing
    if wants and worker.is_suspects_turn and not (step := _try(worker, solo)).is_empty:
        return step
    step = usual()
    if not step.is_empty:
        worker.is_suspects_turn = True
    elif not worker.records and not worker.table.aside:
        step = _try(worker, solo)
    return step


def _is_there_one(worker: Worker, slots: frozenset[int], is_offered: bool) -> bool:
    if any(not worker.request(slot).rests for slot in slots if slot not in worker.table.settling):
        return True
    has_place = worker.num_active < worker.limits.max_num_seqs and worker.table.num_free_slots > 0
    return is_offered and worker.takes_new and has_place


def _try(worker: Worker, solo: Build) -> StepDecision:
    step = solo()
    if step.is_empty:
        worker.no_suspect_before = worker.next_step_id + RETRY_STEPS
    else:
        worker.is_suspects_turn = False
    return step


def build_solo_step(
    worker: Worker, config: SchedulerConfig, offers: WaitingCursor, slots: frozenset[int], now: float
) -> StepDecision:
    """A step in which one suspect runs, of `slots` or of the `offers`, and nobody else. Empty, and nothing changed,
    when none can go on."""
    assert not worker.records and not worker.table.aside
    step = StepDecision(worker.next_step_id)
    budget, table = worker.limits.max_num_batched_tokens, worker.table
    table.begin_turn(step.step_id)
    # Whoever takes a place from a row takes this step's advance off its bound.
    table.bound += table.advance
    admission = _SoloAdmission(worker, config, step, budget, offers, is_short=bool(table.held), now=now)
    admission.run(slots - set(table.rest_changes))
    table.bound -= table.advance
    if not step.is_empty:
        step.is_solo = True
        step.finished_slots = table.name_released()
        if worker.checkpoints is not None:
            step.checkpoints += worker.checkpoints.name_leaving()
            worker.checkpoints.end_step()
            worker.save_evicted(step)
        starts = [*step.resumed, *step.started]
        chunks = [*step.chunks, *(start.chunk for start in starts)]
        table.set_aside(step, chunks[0].slot if chunks else None)
        step.num_prefill_tokens = sum(chunk.length for chunk in chunks)
        worker.records.append(
            StepRecord(
                step_id=step.step_id,
                advance=np.zeros(worker.table.num_slots, np.int32),
                decode_slots=NO_SLOTS,
                num_decode_rows=0,
                has_drafts=False,
                chunks=chunks,
                num_prefill_tokens=step.num_prefill_tokens,
                released_slots=step.finished_slots,
                is_solo=True,
                copies=step.copies,
                checkpoints=step.checkpoints,
                read_checkpoints=[start.checkpoint for start in starts if start.checkpoint != NO_CHECKPOINT],
            )
        )
        worker.next_step_id += 1
        worker.stats.num_steps += 1
        worker.stats.num_block_copies += len(step.copies)
    return step


class _SoloAdmission(PrefillAdmission):
    """One chunk of one suspect."""

    def run(self, slots: frozenset[int]) -> None:
        """Goes on with the first of `slots` that can, or starts one. Whoever else has blocks of a window gives them up
        for it if it goes behind: in their own steps these wait for each other."""
        worker = self.worker
        self.leave_out(frozenset(worker.table.prefilling))
        if self._continue(slots) or self.is_short:
            return
        for slot in [slot for slot in worker.table.resume_queue(0.0, self.now) if slot in slots]:
            if first_closed(OF_TURN, self, worker.request(slot)) or not self._resume(slot, deque([slot])):
                continue
            if self._has_chunk or self._continue(slots):
                return
        while not self._has_chunk and (offer := self._next_offer(deque())) is not None:
            if not self._start_offered(offer):
                return

    @property
    def _has_chunk(self) -> bool:
        return bool(self._step.chunks or self._step.started or self._step.resumed)

    def _continue(self, slots: frozenset[int]) -> bool:
        worker = self.worker
        for slot in worker.table.prefilling:
            if slot in slots and not worker.table.paused[slot]:
                self.continue_prompt(slot)
                if self._has_chunk:
                    return True
        return False
