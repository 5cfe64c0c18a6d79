"""Rows that follow a form, with an automaton and a runner small enough to see through."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from signalbox.grammar.form import Form, FormKind
from signalbox.protocol.enums import FinishReason
from worker_svc.core.batch import Batch, RunnerInfo, Sampled
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.core.faults.isolation import run_step
from worker_svc.core.requests.automaton import FormLimitError, GrammarError
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.core.step import (
    Failure,
    FrontendOutput,
    NewRequest,
    RequestRef,
    SlotStart,
    StepDelta,
    StepReport,
)
from worker_svc.core.worker_core import WorkerCore
from worker_svc.runner.sim.model import SimRunner

V = 100
INFO = RunnerInfo(
    "sim", num_blocks=32, block_size=4, max_model_len=64, vocab_size=V, eos_token_ids=(), max_draft_tokens=4
)
PROMPT = [5, 6, 7, 8, 9]
ENTRY = [{1, 2, 3}, {10}, {20, 21}, {30}, {40, 41, 42}, {50}, {60, 61}]
FORM = Form(FormKind.REGEX, "stands for ENTRY")


class Ladder:
    """An `Automaton`: token i must be of the set i; complete after the last one."""

    def __init__(self, sets: list[set[int]], broken_at: int | None = None) -> None:
        self.sets, self.taken, self._broken_at = sets, list[int](), broken_at
        self.work_us = 0

    @property
    def is_complete(self) -> bool:
        return len(self.taken) == len(self.sets)

    def advance(self, token: int) -> None:
        if self.is_complete or token not in self.sets[len(self.taken)]:
            raise GrammarError(f"{token} is not allowed")
        self.taken.append(token)

    def legal_drafts(self, drafts: NDArray[np.int32]) -> int:
        allowed = self.sets[len(self.taken) :]
        pairs = enumerate(zip(drafts.tolist(), allowed, strict=False))
        return next((i for i, (token, ok) in pairs if token not in ok), min(len(drafts), len(allowed)))

    def fill(self, drafts: NDArray[np.int32], masks: NDArray[np.uint32]) -> None:
        for offset in range(1 + len(drafts)):
            position = len(self.taken) + offset
            if position == self._broken_at:
                raise GrammarError("a limit was reached", offset)
            # Behind the end anything is allowed, so that nothing but the automaton's word ends the request.
            for token in self.sets[position] if position < len(self.sets) else range(V):
                masks[offset, token // 32] |= np.uint32(1 << token % 32)


class MaskedSim(SimRunner):
    """The simulated model: its token picks one of the allowed ones."""

    def execute(self, batch: Batch) -> Sampled:
        sampled = super().execute(batch)
        if batch.masks is not None:
            bits = batch.masks.bits()
            for sample in np.flatnonzero(batch.mask_index >= 0).tolist():
                words = bits[batch.mask_index[sample]]
                allowed = [token for token in range(V) if words[token // 32] >> np.uint32(token % 32) & 1]
                sampled.token_ids[sample] = allowed[int(sampled.token_ids[sample]) % len(allowed)]
        return sampled


@dataclass
class Guesser(Drafter):
    """Drafts: the prepared guesses for the output position, whatever came before."""

    guesses: list[int]

    def propose(self, slot: int, tokens: NDArray[np.int32], limit: int) -> NDArray[np.int32]:
        done = len(tokens) - len(PROMPT)
        return np.array(self.guesses[done : done + max(limit, 0)], np.int32)


class Bench:
    """A core and its runner, step by step."""

    def __init__(self, drafter: Guesser | None = None, runner: SimRunner | None = None) -> None:
        self.core = WorkerCore(INFO, num_slots=4, drafter=drafter)
        self.runner = runner or MaskedSim(INFO)
        self.output: dict[int, list[int]] = {}
        self.ends: dict[int, tuple[FinishReason, int, Failure | None]] = {}
        self._step = 0

    def add(
        self, slot: int, automaton: Ladder | None, *, max_tokens: int = 20, form: Form | None = FORM
    ) -> None:
        ref = RequestRef(f"r{slot}", slot + 1, "f")
        tokens = np.array(PROMPT, np.int32)
        drafts = 4 if self.core.drafting else 0
        self.core.add(
            NewRequest(
                slot, ref, tokens, 0, max_tokens, SamplingParams(), b"", max_draft_tokens=drafts, form=form
            )
        )
        if automaton is not None:
            assert self.core.take_grammar(slot, ref, automaton)

    def start(self, *slots: int) -> StepReport:
        return self.step(
            started=[
                SlotStart(slot, np.arange(slot * 8, slot * 8 + 8, dtype=np.int32), 0, len(PROMPT))
                for slot in slots
            ]
        )

    def step(self, **changes: object) -> StepReport:
        self._step += 1
        step = self.core.apply(StepDelta(self._step, 1, **changes))  # type: ignore[arg-type]
        report, outputs = self.core.commit(step, *run_step(self.runner, step.copies, step.batch))
        self.core.table.check_integrity()
        for output in outputs:
            self._read(output)
        return report

    def run(self) -> None:
        while not set(range(4)) & self.ends.keys():
            self.step()

    def _read(self, output: FrontendOutput) -> None:
        counts = output.counts if output.counts is not None else np.ones(len(output.attempts), int)
        parts = np.split(output.token_ids, np.cumsum(counts))[:-1]
        for attempt, start, part in zip(output.attempts, output.starts, parts, strict=True):
            tokens = self.output.setdefault(int(attempt) - 1, [])
            assert len(tokens) == start
            tokens += part.tolist()
        for attempt, reason, count, failure in output.finished:
            assert attempt - 1 not in self.ends, "ended twice"
            self.ends[attempt - 1] = (reason, count, failure)


def follows(tokens: list[int], sets: list[set[int]]) -> bool:
    return all(token in allowed for token, allowed in zip(tokens, sets, strict=False))


def test_an_output_follows_its_form_and_stops_with_it() -> None:
    """G7."""
    bench = Bench()
    bench.add(0, Ladder(ENTRY))
    bench.start(0)
    bench.run()
    assert len(bench.output[0]) == len(ENTRY) and follows(bench.output[0], ENTRY)
    assert bench.ends[0] == (FinishReason.STOP, len(ENTRY), None)


def test_max_tokens_cuts_a_form_short_with_reason_length() -> None:
    bench = Bench()
    bench.add(0, Ladder(ENTRY), max_tokens=3)
    bench.start(0)
    bench.run()
    assert bench.ends[0] == (FinishReason.LENGTH, 3, None) and follows(bench.output[0], ENTRY)


def test_a_form_completed_by_the_last_token_allowed_is_a_stop() -> None:
    bench = Bench()
    bench.add(0, Ladder(ENTRY), max_tokens=len(ENTRY))
    bench.start(0)
    bench.run()
    assert bench.ends[0] == (FinishReason.STOP, len(ENTRY), None)


def plain_output() -> list[int]:
    bench = Bench()
    bench.add(0, Ladder(ENTRY))
    bench.start(0)
    bench.run()
    return bench.output[0]


@pytest.mark.parametrize("wrong_at", [None, 1, 3, 6])
def test_drafts_give_the_same_output_and_no_token_behind_its_end(wrong_at: int | None) -> None:
    expected = plain_output()
    guesses = [*expected, 77, 78, 79]
    if wrong_at is not None:
        guesses[wrong_at] = 99  # in nobody's set
    bench = Bench(Guesser(guesses))
    automaton = Ladder(ENTRY)
    bench.add(0, automaton)
    bench.start(0)
    bench.run()
    assert bench.output[0] == expected == automaton.taken
    assert bench.ends[0] == (FinishReason.STOP, len(ENTRY), None)
    assert bench._step < len(ENTRY), "drafts were accepted"


def test_a_draft_that_the_form_forbids_is_not_run() -> None:
    """G6."""
    bench = Bench(Guesser([1, 10, 99, 30, 40]))
    bench.add(0, Ladder(ENTRY))
    bench.start(0)
    bench.output[0] = bench.core.table.tokens[0, 5:6].tolist()
    step = bench.core.apply(StepDelta(2, 1))
    assert step.drafts is not None and [draft.tolist() for draft in step.drafts] == [[10]]
    assert step.batch.mask_index.tolist() == [0, 1], "one mask per draft, and one behind"


def test_a_mask_that_cannot_be_made_fails_its_request_and_no_other() -> None:
    """U4."""
    bench = Bench()
    bench.add(0, Ladder(ENTRY, broken_at=3))
    bench.add(1, Ladder(ENTRY), max_tokens=6)
    bench.add(2, None, form=None, max_tokens=6)
    bench.start(0, 1, 2)
    while len(bench.ends) < 3:
        bench.step()
    reason, count, failure = bench.ends[0]
    assert (reason, count) == (FinishReason.ERROR, 3) and len(bench.output[0]) == 3
    assert (
        failure is not None and failure.code == "InternalError" and "a limit was reached" in failure.message
    )
    assert bench.ends[1] == bench.ends[2] == (FinishReason.LENGTH, 6, None)
    assert follows(bench.output[1], ENTRY)


def end_of_a_broken_form(broken_at: int, drafter: Guesser | None = None) -> tuple[Bench, list[int]]:
    bench = Bench(drafter)
    bench.add(0, Ladder(ENTRY, broken_at=broken_at))
    bench.start(0)
    bench.run()
    return bench, bench.output.get(0, [])


@pytest.mark.parametrize("broken_at", range(1, 7))
@pytest.mark.parametrize("wrong_at", [None, 1, 2, 4])
def test_a_mask_that_cannot_be_made_ends_an_output_where_it_would_without_drafts(
    broken_at: int, wrong_at: int | None
) -> None:
    """G9."""
    plain, expected = end_of_a_broken_form(broken_at)
    guesses = plain_output()
    if wrong_at is not None:
        guesses[wrong_at] = min({1, 10, 20, 30, 40, 60} & ENTRY[wrong_at] or {99}, default=99)
    drafted, output = end_of_a_broken_form(broken_at, Guesser(guesses))
    assert output == expected and len(output) == broken_at
    assert drafted.ends[0] == plain.ends[0] and plain.ends[0][0] == FinishReason.ERROR


def test_a_form_that_asks_for_too_much_is_its_clients_fault() -> None:
    """G8."""

    class Costly(Ladder):
        def fill(self, drafts: NDArray[np.int32], masks: NDArray[np.uint32]) -> None:
            if len(self.taken) == 2:
                raise FormLimitError("asks for too much work")
            super().fill(drafts, masks)

    bench = Bench()
    bench.add(0, Costly(ENTRY))
    bench.start(0)
    bench.run()
    failure = Failure("InvalidRequestError", "structured_output asks for too much work", "structured_output")
    assert bench.ends[0] == (FinishReason.ERROR, 2, failure)


def test_the_first_token_too_waits_for_its_mask() -> None:
    bench = Bench()
    bench.add(0, Ladder(ENTRY, broken_at=0))
    report = bench.start(0)
    assert bench.ends[0][:2] == (FinishReason.ERROR, 0) and not bench.output
    assert report.exceptions == [(0, 0)] and [slot for slot, _ in report.not_run] == [0]


def test_a_token_that_the_form_forbids_fails_its_request() -> None:
    bench = Bench(runner=SimRunner(INFO))  # does not look at masks
    bench.add(0, Ladder(ENTRY))
    bench.add(1, None, form=None, max_tokens=2)
    report = bench.start(0, 1)
    assert bench.ends[0][:2] == (FinishReason.ERROR, 0) and bench.output[0] == []
    assert report.exceptions == [(0, 0)] and (0, FinishReason.ERROR, 0) in report.finished
    bench.step()
    assert bench.ends[1] == (FinishReason.LENGTH, 2, None)


def test_a_row_without_its_automaton_never_samples() -> None:
    """U4."""
    bench = Bench()
    bench.add(0, None)
    bench.start(0)
    reason, count, failure = bench.ends[0]
    assert (reason, count) == (FinishReason.ERROR, 0)
    assert failure is not None and "not ready" in failure.message


def test_a_preempted_request_goes_on_where_its_form_was() -> None:
    """G5."""
    expected = plain_output()
    bench = Bench()
    bench.add(0, Ladder(ENTRY))
    bench.start(0)
    bench.step()
    bench.step(preempted_slots=[0])
    blocks = np.arange(8, 16, dtype=np.int32)
    bench.step(resumed=[SlotStart(0, blocks, 0, len(PROMPT) + 2)])
    bench.run()
    assert bench.output[0] == expected


def test_a_grammar_comes_too_late_for_a_slot_that_was_given_away() -> None:
    bench = Bench()
    bench.add(0, None)
    old = RequestRef("r0", 1, "f")
    bench.step(finished_slots=[0])
    assert not bench.core.take_grammar(0, old, Ladder(ENTRY))
    assert bench.core.end_early(0, old, FinishReason.ERROR, None) == []
    bench.core.add(
        NewRequest(
            0, RequestRef("r0", 9, "f"), np.array(PROMPT, np.int32), 0, 5, SamplingParams(), b"", form=FORM
        )
    )
    assert not bench.core.take_grammar(0, old, Ladder(ENTRY)) and bench.core.ready_slots() == []


def test_an_early_end_is_told_once_and_reported_by_no_step() -> None:
    bench = Bench()
    bench.add(0, None)
    failure = Failure("InvalidRequestError", "no", "structured_output")
    (output,) = bench.core.end_early(0, RequestRef("r0", 1, "f"), FinishReason.ERROR, failure)
    assert output.finished == [(1, FinishReason.ERROR, 0, failure)]
    assert bench.core.end_early(0, RequestRef("r0", 1, "f"), FinishReason.ERROR, failure) == []
    report = bench.step()
    assert report.finished == [] and bench.ends == {}
    bench.step(finished_slots=[0])
    assert bench.core.held_slots() == []
