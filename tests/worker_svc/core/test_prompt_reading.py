"""What prompts yield besides KV: exactly once per position, however they are cut, preempted and sent again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from signalbox.protocol.enums import FinishReason, ModelTask, NotRunReason
from worker_svc.core.batch import Batch, RunnerInfo, Sampled, TokenLogprobs
from worker_svc.core.faults.isolation import run_step
from worker_svc.core.requests.pooling import PoolingMode, PoolingParams, pooled_vector
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
from worker_svc.runner.sim.model import SimRunner, continuation

INFO = RunnerInfo(
    "sim",
    num_blocks=32,
    block_size=4,
    max_model_len=64,
    vocab_size=100,
    eos_token_ids=(),
    tasks=(ModelTask.GENERATE, ModelTask.EMBED),
    has_prompt_logprobs=True,
    embedding_size=3,
)
PROMPT = [5, 6, 70, 8, 9, 21, 22, 23, 24, 3, 31]
MEAN, LAST, CLS = (PoolingParams(mode, is_raw=True) for mode in PoolingMode)


class ReadableRunner(SimRunner):
    """The simulated model, with hidden states that are a function of token and position."""

    def execute(self, batch: Batch) -> Sampled:
        sampled = super().execute(batch)
        for span in batch.scored:
            slot, queries = batch.slots[span.row], np.arange(span.start, span.end)
            targets = batch.tokens[slot, batch.positions[queries] + 1].tolist()
            sampled.prompt_logprobs[span.row] = [TokenLogprobs(-float(t), 1, [], []) for t in targets]
        for span in batch.pooled:
            queries = np.arange(span.start, span.end)
            states = hidden_states(batch.token_ids[queries], batch.positions[queries])
            sampled.pooled[span.row] = states.sum(0)
        return sampled


class FailsOn31(ReadableRunner):
    def execute(self, batch: Batch) -> Sampled:
        if 31 in batch.token_ids:
            raise RuntimeError("no such luck")
        return super().execute(batch)


def hidden_states(token_ids: Any, positions: Any) -> Any:
    columns = (token_ids, 100 * (positions + 1), np.ones_like(positions))
    return np.stack(columns, 1).astype(np.float32)


def expected_vector(pooling: PoolingParams, prompt: list[int] = PROMPT) -> list[float]:
    states = hidden_states(np.array(prompt), np.arange(len(prompt))).astype(np.float64)
    chosen = {PoolingMode.MEAN: states.mean(0), PoolingMode.LAST: states[-1], PoolingMode.CLS: states[0]}
    return chosen[pooling.mode].astype(np.float32).tolist()  # type: ignore[no-any-return]


def new(
    slot: int = 0,
    prompt: list[int] | None = None,
    prior: int = 0,
    pooling: PoolingParams | None = None,
    **sampling: Any,
) -> NewRequest:
    tokens = np.array(prompt or PROMPT, np.int32)
    max_tokens = 0 if pooling else 6
    params = SamplingParams(**sampling)
    ref = RequestRef(f"r{slot}", slot + 1, "f")
    return NewRequest(slot, ref, tokens, prior, max_tokens, params, b"", pooling=pooling)


class Drive:
    """A core and a runner, step by step."""

    def __init__(self, runner: SimRunner | None = None) -> None:
        self.core = WorkerCore(INFO, num_slots=4)
        self.runner = runner or ReadableRunner(INFO)
        self.step_id = 0
        self.batch: Batch
        self.reports: list[StepReport] = []
        self.outputs: list[FrontendOutput] = []

    def step(self, **changes: Any) -> StepReport:
        self.step_id += 1
        step = self.core.apply(StepDelta(self.step_id, 1, **changes))
        self.batch = step.batch
        report, outputs = self.core.commit(step, *run_step(self.runner, step.copies, step.batch))
        self.core.table.check_integrity()
        self.reports.append(report)
        self.outputs += outputs
        return report

    def prompt_logprobs(self) -> list[tuple[int, int, float]]:
        """(attempt, position, log-probability) in the order in which they went out."""
        return [
            (attempt, start + i, token.logprob)
            for output in self.outputs
            for attempt, start, tokens in output.prompt_logprobs
            for i, token in enumerate(tokens)
        ]

    def vectors(self) -> list[tuple[int, list[float]]]:
        return [(attempt, v.tolist()) for output in self.outputs for attempt, v in output.vectors]


def start(slot: int, length: int, at: int = 0) -> SlotStart:
    return SlotStart(slot, np.arange(4, dtype=np.int32) + 4 * slot, at, length)


def of_prompt(attempt: int = 1, prompt: list[int] = PROMPT) -> list[tuple[int, int, float]]:
    return [(attempt, position, -float(prompt[position])) for position in range(1, len(prompt))]


@pytest.mark.parametrize("first", [1, 3, 10, 11])
def test_each_prompt_token_but_the_first_is_scored_once_in_chunks(first: int) -> None:
    """L5."""
    drive = Drive()
    drive.core.add(new(num_prompt_logprobs=2))
    drive.step(started=[start(0, first)])
    if first < 11:
        drive.step(chunks=[(0, first, 11 - first)])
    drive.step()
    drive.step()
    assert drive.prompt_logprobs() == of_prompt()


@pytest.mark.parametrize(("done", "second"), [(1, 4), (3, 3), (6, 2), (10, 5)])
def test_a_preempted_prefill_does_not_score_twice(done: int, second: int) -> None:
    """L5."""
    drive = Drive()
    drive.core.add(new(num_prompt_logprobs=0))
    drive.step(started=[start(0, done)])
    drive.step(preempted_slots=[0])
    drive.step(resumed=[start(0, second)])
    drive.step(chunks=[(0, second, 11 - second)])
    assert drive.prompt_logprobs() == of_prompt()


def test_a_request_preempted_while_it_decodes_is_not_scored_again() -> None:
    drive = Drive()
    drive.core.add(new(num_prompt_logprobs=0))
    drive.step(started=[start(0, 11)])
    drive.step()
    drive.step(preempted_slots=[0])
    drive.step(resumed=[start(0, 13)])
    assert drive.prompt_logprobs() == of_prompt()
    tokens = [token for output in drive.outputs for token in output.token_ids.tolist()]
    assert tokens == continuation(PROMPT, 3, 100)


def test_a_new_attempt_scores_the_prompt_again_and_no_prior_output() -> None:
    """L5."""
    drive = Drive()
    drive.core.add(new(num_prompt_logprobs=0))
    drive.step(started=[start(0, 5)])
    drive.step(finished_slots=[0])
    drive.core.add(replace(new(prior=4, num_prompt_logprobs=0), ref=RequestRef("r0", 9, "f")))
    drive.step(started=[start(0, 11)])
    assert drive.prompt_logprobs() == of_prompt()[:5] + of_prompt(9, PROMPT[:7])


@pytest.mark.parametrize("pooling", [MEAN, LAST, CLS], ids=lambda p: p.mode.name)
@pytest.mark.parametrize("first", [1, 4, 10, 11])
def test_a_pooling_request_ends_with_its_vector_and_without_a_decode_row(
    pooling: PoolingParams, first: int
) -> None:
    """L8."""
    drive = Drive()
    drive.core.add(new(pooling=pooling))
    report = drive.step(started=[start(0, first)])
    if first < 11:
        assert (report.exceptions, report.finished) == ([], [])
        report = drive.step(chunks=[(0, first, 11 - first)])
    assert len(drive.batch.sample_index) == 0, "nothing is sampled"
    assert report.exceptions == [(0, 0)]
    assert report.finished == [(0, FinishReason.STOP, 0)]
    assert drive.vectors() == [(1, expected_vector(pooling))]
    assert drive.outputs[-1].finished == [(1, FinishReason.STOP, 0, None)]
    assert drive.step().num_decode_rows == 0, "a step sent ahead has no row for it"
    assert drive.step(finished_slots=[0]).num_decode_rows == 0
    assert drive.core.held_slots() == []


@pytest.mark.parametrize("pooling", [MEAN, LAST, CLS], ids=lambda p: p.mode.name)
@pytest.mark.parametrize(("done", "second"), [(1, 4), (6, 2), (10, 5)])
def test_a_preempted_pooling_request_counts_each_position_once(
    pooling: PoolingParams, done: int, second: int
) -> None:
    drive = Drive()
    drive.core.add(new(pooling=pooling))
    drive.step(started=[start(0, done)])
    drive.step(preempted_slots=[0])
    drive.step(resumed=[start(0, second)])
    drive.step(chunks=[(0, second, 11 - second)])
    assert drive.vectors() == [(1, expected_vector(pooling))]


def test_pooling_runs_in_one_batch_with_generation() -> None:
    drive = Drive()
    drive.core.add(new(0))
    drive.step(started=[start(0, 11)])
    drive.core.add(new(1, prompt=PROMPT[:6], pooling=MEAN))
    drive.core.add(new(2, prompt=PROMPT[:9]))
    drive.core.add(new(3, prompt=PROMPT[:7], pooling=CLS))
    report = drive.step(started=[start(1, 6), start(2, 9), start(3, 7)])
    assert report.exceptions == [(1, 0), (3, 0)] and report.num_decode_rows == 1
    assert drive.vectors() == [
        (2, expected_vector(MEAN, PROMPT[:6])),
        (4, expected_vector(CLS, PROMPT[:7])),
    ]
    last = drive.outputs[-1]
    assert last.attempts.tolist() == [1, 3]
    assert last.token_ids.tolist() == [
        continuation(PROMPT, 2, 100)[1],
        *continuation(PROMPT[:9], 1, 100),
    ]


def test_a_prompt_that_breaks_the_model_takes_nobody_elses_results() -> None:
    """The batch is halved until the culprit is alone: rows that ran are neither lost nor counted twice."""
    drive = Drive(FailsOn31(INFO))
    good = PROMPT[:10]
    drive.core.add(new(0, prompt=good, num_prompt_logprobs=0))
    drive.core.add(new(1, prompt=good, pooling=MEAN))
    drive.core.add(new(2, pooling=MEAN))
    drive.core.add(new(3, prompt=good[:8], pooling=LAST))
    report = drive.step(started=[start(0, 10), start(1, 10), start(2, 11), start(3, 8)])
    assert drive.prompt_logprobs() == of_prompt(1, good)
    assert drive.vectors() == [(2, expected_vector(MEAN, good)), (4, expected_vector(LAST, good[:8]))]
    assert report.not_run == [(2, NotRunReason.ERROR)]
    assert sorted(report.exceptions) == [(1, 0), (2, 0), (3, 0)]
    reasons = {slot: reason for slot, reason, _ in report.finished}
    assert reasons == {1: FinishReason.STOP, 2: FinishReason.ERROR, 3: FinishReason.STOP}


@pytest.mark.parametrize("asked", [{"num_prompt_logprobs": 1}, {"pooling": MEAN}, {"pooling": CLS}], ids=str)
def test_cached_blocks_where_every_position_is_needed_fail_the_request(asked: dict[str, Any]) -> None:
    """L5."""
    drive = Drive()
    drive.core.add(new(**asked))
    report = drive.step(started=[start(0, 7, at=4)])
    assert report.not_run == [(0, NotRunReason.ERROR)] and report.exceptions == [(0, 0)]
    failure = drive.outputs[-1].finished[0][3]
    assert failure is not None and "positions from 0 to 4" in failure.message
    assert not drive.vectors() and not drive.prompt_logprobs()


def test_the_last_position_alone_may_follow_cached_blocks() -> None:
    drive = Drive()
    drive.core.add(new(pooling=LAST))
    drive.step(started=[start(0, 7, at=4)])
    assert drive.vectors() == [(1, expected_vector(LAST))]


def test_a_pooling_request_that_failed_at_once_has_no_decode_row_either() -> None:
    drive = Drive()
    drive.core.add(replace(new(pooling=MEAN), failure=Failure("UnsupportedError", "no")))
    report = drive.step(started=[start(0, 11)])
    assert report.not_run == [(0, NotRunReason.ENDED)] and report.exceptions == [(0, 0)]
    assert report.finished == [(0, FinishReason.ERROR, 0)]
    assert drive.step().num_decode_rows == 0


def test_vectors_are_cut_before_they_are_scaled() -> None:
    """L6."""
    total = np.array([6.0, -8.0, 100.0])
    assert pooled_vector(total, 2, PoolingParams(PoolingMode.MEAN, dimensions=2)).tolist() == pytest.approx(
        [0.6, -0.8]
    )
    assert pooled_vector(total, 2, PoolingParams(PoolingMode.MEAN, is_raw=True)).tolist() == [3.0, -4.0, 50.0]
    assert pooled_vector(np.zeros(3), 2, MEAN).tolist() == [0.0, 0.0, 0.0]
