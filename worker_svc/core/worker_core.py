"""The worker's rules: a delta comes in and becomes a batch; sampled tokens come in and become a report and outputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from signalbox.protocol.enums import FinishReason, NotRunReason
from signalbox.protocol.terms import MAX_TERM
from worker_svc.core.acceptance import accept
from worker_svc.core.alone.loan import Loan
from worker_svc.core.alone.steps import author_step
from worker_svc.core.batch import RunnerInfo, Sampled
from worker_svc.core.batch_builder import build_batch, ready_rows
from worker_svc.core.changes import apply_changes
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.core.drafts.drafting import Drafting, DraftTotals
from worker_svc.core.faults.bad_streak import BadStreak
from worker_svc.core.faults.failed_rows import FailedRows, report_unused
from worker_svc.core.faults.solo import SoloSteps
from worker_svc.core.handoff.exports import Tail
from worker_svc.core.handoff.handoffs import Handoffs
from worker_svc.core.handoff.imports import Import, ImportRequest
from worker_svc.core.output_sorter import OutputSorter
from worker_svc.core.parts.make import make_parts
from worker_svc.core.requests.automaton import Automaton
from worker_svc.core.requests.checkpoints import Checkpoints
from worker_svc.core.requests.grammar import GrammarTable
from worker_svc.core.requests.masks import MaskMaker
from worker_svc.core.requests.prompt_reading import TOO_MANY_RESULTS, take_readings, unread_gap
from worker_svc.core.requests.reasoning import ReasoningGuard
from worker_svc.core.requests.request_state import RequestTable, SlotStatus
from worker_svc.core.requests.restricted import Restriction
from worker_svc.core.requests.state_versions import StateVersions
from worker_svc.core.requests.stop_tokens import StopTokens
from worker_svc.core.run_ahead import needs_commit, needs_commit_of_lane
from worker_svc.core.running_step import RunningStep
from worker_svc.core.seal import seal_blocks
from worker_svc.core.step import (
    I64,
    Failure,
    FrontendOutput,
    NewRequest,
    RequestRef,
    SlotStart,
    StepDelta,
    StepReport,
)


class StepRefusedError(Exception):
    """The delta is not for us: an older scheduler's, or out of order. The link is to be closed; our next hello says
    where we stand."""


class WorkerCore:
    """The requests of one worker and the steps that move them on. One thread owns it."""

    def __init__(
        self, info: RunnerInfo, num_slots: int, drafter: Drafter | None = None, bad_row_limit: int = 3
    ) -> None:
        """bad_row_limit: see `BadStreak`."""
        self.table = RequestTable.of(info, num_slots)
        self.states = StateVersions(num_slots, info.num_state_versions)
        self.checkpoints = Checkpoints(info.state_group, self.table, self.states)
        self.scheduler_epoch = 0
        """Highest term of a scheduler that was obeyed."""
        self.scheduler_instance = ""
        """Process of that scheduler; empty: it did not say."""
        self.last_step_id = 0
        self.last_scheduled_step_id = 0
        """Last step of that scheduler; those behind it are our own. 0: none."""
        self.loan = Loan(info.num_blocks, info.groups)
        self.solo = SoloSteps()
        self.drafting = Drafting(info, num_slots, drafter) if drafter is not None else None
        self._settling: list[int] = []
        """Slots whose final chunk was named in the last step: decode rows from the next one on."""
        self._refused: list[int] = []
        """Slots whose requests were refused when they came. Their frontends know it; the report of the next step tells
        the scheduler."""
        self._failed: list[int] = []
        """Slots whose requests failed in the step that is being applied."""
        self._grammars = GrammarTable(num_slots, info.vocab_size, info.eos_token_ids)
        # One column: rows that have a mask are rows that need the host.
        self.table.sampling.follows_form = self._grammars.constrained
        self._stops = StopTokens()
        self._sorter = OutputSorter(self.table)
        self.bad_streak = BadStreak(bad_row_limit)
        self._failed_rows = FailedRows(self.table, self.bad_streak)
        self.handoffs = Handoffs(self.table, self.states)
        self.parts = make_parts(info, self.table, self.handoffs)

    @property
    def draft_totals(self) -> DraftTotals:
        """What became of all drafts so far."""
        return self.drafting.totals if self.drafting is not None else DraftTotals()

    def make_masks_with(self, maker: MaskMaker) -> None:
        """Who makes the masks of outputs that follow a form; without a word they are made where they are needed."""
        self._grammars.maker = maker

    def wait_for_masks(self) -> None:
        """A step runs nothing: it lasts until one of the masks is there that are being made, and not for long (G14)."""
        self._grammars.wait_for_one()

    # -- what comes in --

    def add(self, request: NewRequest) -> list[FrontendOutput]:
        """Moves a request into its slot, ahead of any step that names it. One that cannot be served ends here, and its
        frontend is told so at once: there may be no next step."""
        slot, table = request.slot, self.table
        if table.status[slot] != SlotStatus.FREE:
            self._clear(slot)
            self._grammars.work.forget(slot)
        table.add(request)
        self._join(request)
        if request.failure is None or request.tells_early:
            return []
        table.end(slot, FinishReason.ERROR, request.failure)
        self._refused.append(slot)
        return [self._sorter.ending(slot)]

    def _join(self, request: NewRequest) -> None:
        """Takes what stands beside the table of a request that is in it."""
        slot = request.slot
        if self.drafting is not None:
            self.drafting.start(slot, request.max_draft_tokens)
        self._stops.add(request.sampling)
        self._sorter.add(slot, request.ref.frontend_instance)
        if request.form is not None:
            self._grammars.expect(slot, request.account)
        if request.sampling.forbids and (request.form or request.reasoning):
            self._grammars.restrict(slot, Restriction.after(request.sampling, request.prior_output.tolist()))
        if request.reasoning is not None:
            self._grammars.guard(slot, ReasoningGuard.after(request.reasoning, request.prior_output.tolist()))

    def reserve(self, request: ImportRequest) -> None:
        """Keeps a slot for a request that another worker has."""
        if self.table.status[request.slot] != SlotStatus.FREE:
            self._clear(request.slot)
            self._grammars.work.forget(request.slot)
        self.handoffs.imports.begin(request)

    def take_import(
        self, found: Import, request: NewRequest, tail: Tail, automaton: Automaton | None
    ) -> None:
        """All of a request is here that another worker has: it waits for the scheduler's word. automaton: of its form,
        behind all output. Raises BadTailError."""
        self.handoffs.imports.take(found, request, tail)
        self._join(request)
        if automaton is not None:
            self._grammars.put(found.slot, automaton)

    def take_grammar(self, slot: int, ref: RequestRef, automaton: Automaton) -> bool:
        """The grammar of a request is ready; False: the request is not waiting for it any more."""
        if not self._is_preparing(slot, ref):
            return False
        self._grammars.put(slot, automaton)
        return True

    def end_early(
        self, slot: int, ref: RequestRef, reason: FinishReason, failure: Failure | None
    ) -> list[FrontendOutput]:
        """Ends a request before any step has run it, and tells its frontend; nothing if it is gone."""
        if not self._is_preparing(slot, ref):
            return []
        self.table.end(slot, reason, failure)
        return [self._sorter.ending(slot)]

    def _is_preparing(self, slot: int, ref: RequestRef) -> bool:
        return self.table.status[slot] == SlotStatus.PREPARING and self.table.refs[slot] == ref

    def ready_slots(self) -> list[int]:
        """Slots that have not run yet, and whose grammar is ready: frozen ones, too, which may go on here."""
        status = self.table.status
        slots = np.flatnonzero((status == SlotStatus.PREPARING) | (status == SlotStatus.FROZEN)).tolist()
        waiting = [slot for slot in slots if self.handoffs.exports.status_of(slot) == SlotStatus.PREPARING]
        return [slot for slot in waiting if self._grammars.is_ready(slot)]

    def has_first_mask(self, slot: int, tell: Callable[[], None]) -> bool:
        """Whether one of the ready slots may start; if not, `tell` is called when it may, perhaps twice and in another
        thread."""
        return self._grammars.has_first_mask(slot, tell)

    def has_to_wait(self, delta: StepDelta) -> bool:
        """Whether the steps in flight have to be committed before `delta` can be applied: it needs what they make on
        the host, or takes the blocks of a request whose tokens they are still making."""
        if self._refused or (delta.orders and self.parts.need_commit(delta)):
            return True
        if self.table.num_lanes > 1:
            return needs_commit_of_lane(self.table, delta, self._settling)
        if self.drafting is not None and self.drafting.is_on:
            return True
        return needs_commit(self.table, delta, self._settling)

    def apply(self, delta: StepDelta) -> RunningStep:
        """Takes a delta into the table and derives the step's batch; see `has_to_wait`. Raises StepRefusedError."""
        self._check(delta)
        self._settle()
        table = self.table
        self.checkpoints.follow(delta.all_copies)
        state_copies, positions = self.checkpoints.save(delta.checkpoints)
        state_copies += apply_changes(
            table, delta, self.states, self.checkpoints, self.handoffs, self.parts, self._clear
        )
        if delta.preempted_slots:
            live = [slot for slot in delta.preempted_slots if table.status[slot] != SlotStatus.ENDED]
            self._grammars.make(live)
        rows = table.rows_of(delta.step_id)
        report = StepReport(delta.step_id, num_decode_rows=len(rows), checkpoint_positions=positions)
        chunks = self._admit_chunks(delta, report)
        ready = ready_rows(table, rows, report, is_skipped=delta.is_skipped)
        if self._grammars.jobs:
            ready = self._on_time(ready, report)
        drafts = self.drafting.propose(table, delta, ready) if self.drafting is not None else None
        drafts = self._grammars.cut_drafts(ready, drafts)
        batch = build_batch(table, delta.step_id, ready, drafts, chunks)
        self.states.take(batch)
        self.checkpoints.keep(batch, delta.checkpoints)
        batch.masks = self._grammars.masks(batch.slots, batch.sample_rows, drafts)
        if batch.masks is not None:
            batch.mask_index = batch.masks.index
        ahead = batch.positions[batch.query_starts[:-1]] >= table.num_tokens[batch.slots]
        table.num_in_flight[batch.slots] += batch.query_lengths
        refused, self._refused = self._refused, []
        failed, self._failed = self._failed, []
        step = RunningStep(
            report, batch, rows, chunks, delta.copies, drafts, refused, failed, ahead, delta.side_copies
        )
        step.state_copies, step.checkpoints = state_copies, delta.checkpoints
        if delta.orders:
            step.begins = self.parts.begins_aside(delta)
        return step

    def refusal_of(self, delta: StepDelta) -> str | None:
        """Why a delta cannot be for us; None: it can be applied."""
        if delta.scheduler_epoch > MAX_TERM:
            return f"epoch {delta.scheduler_epoch} is above {MAX_TERM}, which no scheduler can have"
        if delta.scheduler_epoch < self.scheduler_epoch:
            return f"epoch {delta.scheduler_epoch} is older than {self.scheduler_epoch}"
        if delta.step_id != self.last_step_id + 1:
            return f"step {delta.step_id} follows step {self.last_step_id}"
        return self.parts.lacking(delta) if delta.orders else None

    def _check(self, delta: StepDelta) -> None:
        refusal = self.refusal_of(delta)
        if refusal is not None:
            raise StepRefusedError(refusal)
        self.scheduler_epoch, self.last_step_id = delta.scheduler_epoch, delta.step_id
        if not delta.is_own:
            self.last_scheduled_step_id = delta.step_id
            self.loan.withdraw(delta)
            self.solo.note(delta)

    def _settle(self) -> None:
        self.table.runs[self._settling] = True
        self._settling = []

    def _on_time(self, rows: I64, report: StepReport) -> I64:
        """The decode rows among `rows` whose masks are not late; the others sit the step out."""
        late = self._grammars.late_among(rows)
        if not late:
            return rows
        self._grammars.sit_out(late)
        report.exceptions += [(slot, 0) for slot in late]
        return rows[~np.isin(rows, late)]

    def _admit_chunks(self, delta: StepDelta, report: StepReport) -> list[SlotStart]:
        """The chunks that start where their request stands; the others are reported as not run."""
        table, admitted = self.table, []
        none = np.empty(0, np.int32)
        named = [SlotStart(slot, none, start, length) for slot, start, length in delta.chunks]
        for chunk in (*named, *delta.resumed, *delta.started):
            slot, is_final = chunk.slot, chunk.start + chunk.length == table.prefill_target[chunk.slot]
            report.num_prefill_tokens += chunk.length
            if is_final and table.pooling[slot] is None:
                self._settling.append(slot)
                table.lane[slot] = delta.step_id % table.num_lanes
            reason = self._why_not(chunk, is_final)
            if reason is None:
                admitted.append(chunk)
                continue
            report.not_run.append((slot, reason))
            if is_final:
                report.exceptions.append((slot, 0))
        return admitted

    def _why_not(self, chunk: SlotStart, is_final: bool) -> NotRunReason | None:
        """Why `chunk` cannot run; None: it can. A request that can never be served as asked ends here."""
        table, slot = self.table, chunk.slot
        if table.status[slot] == SlotStatus.ENDED:
            return NotRunReason.ENDED
        known = table.num_computed[slot] + table.num_in_flight[slot]
        if table.status[slot] != SlotStatus.PREFILL or known != chunk.start:
            return NotRunReason.STALE
        message = self.states.gap_ahead_of(slot, chunk.start) or unread_gap(table, chunk)
        if message:
            table.end(slot, FinishReason.ERROR, Failure("InternalError", message))
            self._failed.append(slot)
            return NotRunReason.ERROR
        if is_final and not self._grammars.is_made(slot):
            self._grammars.sit_out([slot])
            return NotRunReason.STALE
        return None

    # -- what goes out --

    def commit(
        self, step: RunningStep, sampled: Sampled, failed: dict[int, str]
    ) -> tuple[StepReport, list[FrontendOutput]]:
        """Takes the sampled tokens into the table. `failed` are rows of the batch that the model failed on."""
        table, report = self.table, step.report
        table.num_in_flight[step.batch.slots] -= step.batch.query_lengths
        overrun = self._drop_overruns(step)
        for row, message in failed.items():
            if row not in overrun:
                failure = Failure("InternalError", f"the model failed on the request: {message}")
                self._failed_rows.fail(step, row, failure)
        failed = failed | overrun
        failed = failed | self._failed_rows.fail_bad(step, sampled, failed)
        if step.batch.masks is not None:
            failed = failed | self._failed_rows.fail_unmasked(step, step.batch.masks, failed)
            failed = failed | self._sit_out(step, step.batch.masks.late, failed)
        for chunk in step.chunks:
            if table.status[chunk.slot] == SlotStatus.PREFILL:
                table.num_computed[chunk.slot] = chunk.start + chunk.length
        new = accept(table, self._stops, self._grammars, step, sampled, failed)
        self.states.commit(step.batch, failed, new.matched)
        self.checkpoints.commit(step.batch, step.checkpoints, failed, report.checkpoint_positions)
        prompts = take_readings(table, step, sampled, failed)
        odd = np.flatnonzero(new.counts != 1)
        report.exceptions += zip(new.slots[odd].tolist(), new.counts[odd].tolist(), strict=True)
        report.exceptions += [(slot, 0) for slot in (*prompts.vectors, *prompts.too_many)]
        if self.drafting is not None:
            self.drafting.learn(step, new.matched)
        seal_blocks(table, new.slots, report)
        ends = [*new.ends, *((slot, FinishReason.STOP) for slot in prompts.vectors)]
        ends += [(slot, FinishReason.ERROR) for slot in prompts.too_many]
        new.failures.update(dict.fromkeys(prompts.too_many, TOO_MANY_RESULTS))
        ended = self._end(step, ends, new.failures)
        if self._grammars.ahead:
            self._grammars.make_ahead(new.slots[table.status[new.slots] == SlotStatus.DECODE].tolist())
        if self._grammars.work.reported or self._grammars.work.left:
            self._report_work(report)
        report.use_dense_counts(step.rows)
        return report, self._sorter.outputs(new, ended, sampled, prompts)

    def _report_work(self, report: StepReport) -> None:
        """Names what automata have worked. A step of the worker's own is reported to nobody."""
        if report.step_id <= self.last_scheduled_step_id:
            report.mask_us = self._grammars.take_work([slot for slot, _, _ in report.finished])
        else:
            self._grammars.work.forget_left()

    def _sit_out(self, step: RunningStep, late: list[int], failed: dict[int, str]) -> dict[int, str]:
        """The rows whose masks were late, with why they do not count. Nothing of them has changed."""
        late = [row for row in late if row not in failed]
        for row in late:
            assert row < step.batch.num_decode_rows, "a prompt ended without its mask"
            report_unused(self.table, step, row, NotRunReason.STALE)
        self._grammars.sit_out(step.batch.slots[late].tolist())
        return dict.fromkeys(late, "its mask was late")

    def _drop_overruns(self, step: RunningStep) -> dict[int, str]:
        """The rows whose request ended, or was cancelled, while they were in flight, with why they do not count."""
        status = self.table.status[step.batch.slots]
        rows = np.flatnonzero((status == SlotStatus.ENDED) | (status == SlotStatus.FREE)).tolist()
        for row in rows:
            report_unused(self.table, step, row, NotRunReason.ENDED)
        return dict.fromkeys(rows, "the request had ended")

    def _end(
        self, step: RunningStep, ends: list[tuple[int, FinishReason]], failures: dict[int, Failure]
    ) -> list[int]:
        """Ends the requests that are done, and reports them and those that failed. Returns the slots of both, which
        their frontends have to be told of."""
        for slot, reason in ends:
            self.table.end(slot, reason, failures.get(slot))
        ended = [*step.failed, *(slot for slot, _ in ends)]
        for slot in (*step.refused, *ended):
            reason = FinishReason(int(self.table.finish_reasons[slot]))
            step.report.finished.append((slot, reason, self.table.num_output(slot)))
        return ended

    def _clear(self, slot: int) -> None:
        params = self.table.sampling.params[slot]
        if params is not None:
            self._stops.remove(params)
        if slot in self._refused:
            self._refused.remove(slot)
        self.handoffs.forget(slot)
        self._grammars.clear(slot)
        self._sorter.remove(slot)
        self.solo.suspects.discard(slot)
        self.states.reset(slot)
        self.checkpoints.forget(slot)
        if self.drafting is not None:
            self.drafting.forget(slot)
        self.table.clear(slot)

    # -- links --

    def greet(self, term: int, instance: str) -> None:
        """A scheduler has taken us over, as our last snapshot said: from now on it knows better."""
        if instance != self.scheduler_instance:
            self.last_scheduled_step_id = 0
        self.scheduler_epoch, self.scheduler_instance = max(term, self.scheduler_epoch), instance
        self.loan.forget()

    def author(self, most_tokens: int) -> StepDelta | None:
        """The next step of a worker that has no scheduler; None: nothing can run. What it grants is taken from the
        loan: it has to be applied."""
        return author_step(
            self.table,
            self._settling,
            self.loan,
            most_tokens,
            step_id=self.last_step_id + 1,
            epoch=self.scheduler_epoch,
        )

    def give_up(self) -> None:
        """Forgets all requests, and all steps."""
        for slot in self.held_slots():
            self._clear(slot)
        self.rest()
        self.loan.forget()
        self.last_step_id = self.last_scheduled_step_id = 0

    def rest(self) -> None:
        """The link ended and all steps have run: nothing is half announced any more."""
        table = self.table
        self._settling = []
        if self.drafting is not None:
            self.drafting.rest()
        table.runs[:] = table.status == SlotStatus.DECODE
        table.paused &= table.runs
        for slot in self.handoffs.rest():
            self._clear(slot)
        self._grammars.work.forget_left()

    def held_slots(self) -> list[int]:
        """Slots that a snapshot has to tell of."""
        return np.flatnonzero(self.table.status != SlotStatus.FREE).tolist()
