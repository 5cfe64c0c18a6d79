"""The sampler against a float64 reference, and against itself in other batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.worker_svc.runner.sampling.sampler_harness import distribution, is_inverse, make_batch, run
from worker_svc.core.batch import Batch
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.runner.sampling.logprobs import best_tokens
from worker_svc.runner.sampling.sampler import sample

pytestmark = pytest.mark.usefixtures("draws_with")
GREEDY = SamplingParams(temperature=0.0)
LIMITS = [
    SamplingParams(),
    SamplingParams(temperature=0.7),
    SamplingParams(top_k=1),
    SamplingParams(top_k=50),
    SamplingParams(top_k=64, temperature=1.5),
    SamplingParams(top_k=200, top_p=0.9),
    SamplingParams(top_k=1500, temperature=2.0),
    SamplingParams(top_k=100_000),
    SamplingParams(top_p=0.5),
    SamplingParams(top_p=0.95, temperature=0.5),
    SamplingParams(top_p=0.999, temperature=3.0),
    SamplingParams(min_p=0.05),
    SamplingParams(min_p=0.001, temperature=2.0),
    SamplingParams(top_k=40, top_p=0.8, min_p=0.02),
]


def make_logits(rows: int, vocab_size: int, spread: float = 3.0, seed: int = 0) -> torch.Tensor:
    return spread * torch.randn(rows, vocab_size, generator=torch.Generator().manual_seed(seed))


def test_greedy_takes_the_first_of_equals() -> None:
    logits = make_logits(40, 1000)
    logits[3, [17, 400, 999]] = 50.0
    tokens = run(logits, [GREEDY] * 40).token_ids
    assert tokens[3] == 17
    assert tokens.tolist() == logits.argmax(-1).tolist()


def test_greedy_of_bfloat16_logits() -> None:
    logits = make_logits(4, 1000).bfloat16()
    expected = [int(np.argmax(row)) for row in logits.float().numpy()]
    assert run(logits, [GREEDY] * 4).token_ids.tolist() == expected


@pytest.mark.parametrize("vocab_size", [40, 512, 5000])
@pytest.mark.parametrize("spread", [0.3, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_token_is_the_inverse_of_the_distribution(vocab_size: int, spread: float, dtype: torch.dtype) -> None:
    """D3: in bfloat16 many logits are equal, at the border of a top_k too; the lower token id comes first."""
    rows = 20 * len(LIMITS)
    logits = make_logits(rows, vocab_size, spread).to(dtype)
    params = [replace(LIMITS[i % len(LIMITS)], seed=i % 7, choice_index=i % 3) for i in range(rows)]
    sampled = run(logits, params)
    for i, token in enumerate(sampled.token_ids.tolist()):
        assert is_inverse(token, logits[i].double().numpy(), params[i], i), f"row {i}: {params[i]}"


@pytest.mark.parametrize("params", LIMITS, ids=str)
def test_frequencies_follow_the_distribution(params: SamplingParams) -> None:
    count = 4000
    logits = make_logits(1, 100, spread=1.5)
    expected = distribution(logits[0].double().numpy(), params) * count
    sampled = run(logits.expand(count, -1), [replace(params, seed=11)] * count)
    observed = np.bincount(sampled.token_ids, minlength=100)
    assert not observed[expected == 0].any()
    common = expected > 5
    rest_expected, rest_observed = expected[~common].sum(), observed[~common].sum()
    statistic = ((observed - expected)[common] ** 2 / expected[common]).sum()
    statistic += (rest_observed - rest_expected) ** 2 / max(rest_expected, 1)
    assert statistic < chi_square_bound(max(1, int(common.sum())))


def chi_square_bound(degrees: int) -> float:
    """What a chi-square statistic exceeds once in 10,000 times (Wilson and Hilferty's approximation)."""
    return float(degrees * (1 - 2 / (9 * degrees) + 3.72 * (2 / (9 * degrees)) ** 0.5) ** 3)


def mixed_params(count: int) -> list[SamplingParams]:
    params = [replace(LIMITS[i % len(LIMITS)], seed=i, num_logprobs=i % 4) for i in range(count)]
    params[5] = replace(GREEDY, num_logprobs=20)
    params[6] = replace(params[6], frequency_penalty=0.5, logit_bias={3: 2.0})
    return params


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocab_size", [512, 40_000])
def test_rows_do_not_depend_on_each_other(vocab_size: int, dtype: torch.dtype) -> None:
    """Y1: bit for bit; with bfloat16 logits there are many equal ones."""
    count = 45
    logits, params = make_logits(count, vocab_size).to(dtype), mixed_params(count)
    together = run(logits, params)
    for i in range(count):
        alone = run(logits[i : i + 1], params[i : i + 1], output_positions=[i])
        assert alone.token_ids[0] == together.token_ids[i]
        assert alone.logprobs[0] == together.logprobs[i]


def test_a_temperature_near_zero_takes_the_best() -> None:
    logits = make_logits(4, 300, spread=100)
    params = [SamplingParams(temperature=1e-30, seed=i, top_p=0.9 if i % 2 else 1.0) for i in range(4)]
    assert run(logits, params).token_ids.tolist() == logits.argmax(-1).tolist()


def test_seed_choice_and_position_all_change_the_draw() -> None:
    """D1."""
    logits = make_logits(1, 5000, spread=0.1).expand(4, -1)
    params = [SamplingParams(), SamplingParams(seed=1), SamplingParams(choice_index=1), SamplingParams()]
    assert len(set(run(logits, params, output_positions=[0, 0, 0, 1]).token_ids.tolist())) == 4


def test_choices_of_one_seed_are_streams_of_their_own_and_come_again() -> None:
    """128 choices, each of 50 positions: as different as draws can be, and the same in any batch and order."""
    choices, positions, vocab_size = 128, 50, 5000
    logits = torch.zeros(1, vocab_size).expand(choices, -1)
    params = [SamplingParams(seed=5, choice_index=choice) for choice in range(choices)]
    streams = np.stack(
        [run(logits, params, output_positions=[p] * choices).token_ids for p in range(positions)], axis=1
    )
    assert len(np.unique(streams, axis=0)) == choices
    pairs = choices * positions
    # Of uniform draws from 5,000 so many differ, with a standard deviation of about 30.
    expected = vocab_size * (1 - (1 - 1 / vocab_size) ** pairs)
    assert abs(len(np.unique(streams)) - expected) < 200
    matches = (streams[:-1] == streams[1:]).sum() + (streams[:, :-1] == streams[:, 1:]).sum()
    assert matches < 20, "neighbours in choice or position agree about once in 5,000 draws"
    for choice in (0, 1, 77):
        alone = [run(logits[:1], [params[choice]], output_positions=[p]).token_ids[0] for p in range(10)]
        assert alone == streams[choice, :10].tolist()


def test_best_tokens_puts_equals_in_order_of_their_ids() -> None:
    scores = make_logits(3, 2000).round()
    for width in (20, 2000):
        values, tokens = best_tokens(scores, width)
        keys = list(zip((-values).flatten().tolist(), tokens.flatten().tolist(), strict=True))
        for row in range(3):
            assert keys[row * width : (row + 1) * width] == sorted(keys[row * width : (row + 1) * width])


def adjusted(params: SamplingParams, prompt: list[int], output: list[int]) -> list[float]:
    """What the sampler makes of the scores `[2, 1, 0, -1, -2, -3]`."""
    scores = torch.tensor([[2.0, 1.0, 0.0, -1.0, -2.0, -3.0]])
    batch = make_batch([params], [len(output)], [prompt], [output])
    sample(scores, batch)
    return scores[0].tolist()


def test_repetition_penalty_counts_prompt_and_output() -> None:
    params = SamplingParams(repetition_penalty=2.0)
    assert adjusted(params, [0, 4, 0], [3]) == [1.0, 1.0, 0.0, -2.0, -4.0, -3.0]


def test_frequency_and_presence_penalties_count_the_output_alone() -> None:
    params = SamplingParams(frequency_penalty=0.5, presence_penalty=0.25)
    assert adjusted(params, [0, 4, 0], [3, 1, 3]) == [2.0, 0.25, 0.0, -2.25, -2.0, -3.0]


def test_logit_bias() -> None:
    assert adjusted(SamplingParams(logit_bias={5: 10.0, 0: -1.5, 99: 1.0}), [0], [1]) == [
        0.5,
        1.0,
        0.0,
        -1.0,
        -2.0,
        7.0,
    ]


def test_stop_tokens_wait_for_min_tokens() -> None:
    logits = make_logits(60, 50)
    logits[:, 9] = 30.0
    params = SamplingParams(temperature=0.0, min_tokens=3, stop_token_ids=frozenset({9, 1000}))
    early = run(logits, [params] * 60, output_positions=[2] * 60).token_ids
    late = run(logits, [params] * 60, output_positions=[3] * 60).token_ids
    assert 9 not in early.tolist()
    assert set(late.tolist()) == {9}


INF = float("inf")


def forbidden(sequences: list[list[int]], prompt: list[int], output: list[int], **others: Any) -> set[int]:
    """Tokens of six that cannot come next."""
    params = SamplingParams(bad_token_sequences=tuple(map(tuple, sequences)), **others)
    return {token for token, score in enumerate(adjusted(params, prompt, output)) if score == -INF}


def test_a_single_bad_token_never_comes() -> None:
    assert forbidden([[3], [5], [99]], [1], []) == forbidden([[3], [5]], [3], [3, 5, 0]) == {3, 5}


def test_a_bad_sequence_is_not_completed() -> None:
    sequences = [[0, 1, 2], [1, 3], [1, 4, 1]]
    assert forbidden(sequences, [5], []) == set()
    assert forbidden(sequences, [5], [0]) == set()
    assert forbidden(sequences, [5], [0, 1]) == {2, 3}
    assert forbidden(sequences, [5], [0, 1, 0]) == set()
    assert forbidden(sequences, [5], [5, 5, 1, 4]) == {1}
    assert forbidden([[2, 2]], [5], [2]) == {2}


def test_a_bad_sequence_begins_in_the_output() -> None:
    """D5."""
    assert forbidden([[1, 2]], [0, 1], []) == set()
    assert forbidden([[0, 1, 2]], [0], [1]) == set()


def test_bad_words_hold_whatever_else_is_asked_for() -> None:
    others: dict[str, Any] = {"logit_bias": {2: 100.0}, "repetition_penalty": 2.0, "presence_penalty": -2.0}
    assert forbidden([[1, 2]], [0], [2, 1], **others) == {2}
    waits = {"min_tokens": 2, "stop_token_ids": frozenset({5})}
    assert forbidden([[1, 2]], [0], [1], **waits) == {2, 5}
    assert forbidden([[1, 2]], [0], [0, 1], **waits) == {2}


def test_bad_words_are_kept_out_at_any_temperature() -> None:
    logits = make_logits(200, 50)
    logits[:, 9] = 30.0
    bad = ((4, 9),)
    params = [SamplingParams(temperature=i % 3, seed=i, bad_token_sequences=bad) for i in range(200)]
    last = [4 if i % 2 else 5 for i in range(200)]
    tokens = run(logits, params, outputs=[[token] for token in last]).token_ids
    assert {token == 9 for token, before in zip(tokens.tolist(), last, strict=True) if before == 4} == {False}
    assert (tokens[::2] == 9).mean() > 0.9


def test_only_tokens_that_are_allowed_come() -> None:
    """At any temperature, however likely the others are, whatever else is asked for."""
    allowed = (4, 17, 33)
    logits = make_logits(300, 50)
    logits[:, 9] = 30.0
    others: dict[str, Any] = {"logit_bias": {9: 100.0}, "repetition_penalty": 1.3, "num_logprobs": 2}
    params = [
        SamplingParams(temperature=i % 3, seed=i, allowed_token_ids=allowed, **(others if i % 2 else {}))
        for i in range(300)
    ]
    tokens = run(logits, [*params, GREEDY][:300]).token_ids
    assert set(tokens.tolist()) == set(allowed)
    best = [allowed[int(row.argmax())] for row in logits[::6, list(allowed)]]
    assert tokens[::6].tolist() == best


def test_what_would_leave_no_allowed_token_gives_way() -> None:
    """D5."""
    params = SamplingParams(
        allowed_token_ids=(2, 4), bad_token_sequences=((2,),), min_tokens=3, stop_token_ids=frozenset({4})
    )
    assert adjusted(params, [0], [1]) == [-INF, -INF, 0.0, -INF, -2.0, -INF]
    assert adjusted(replace(params, min_tokens=0), [0], [1]) == [-INF] * 4 + [-2.0, -INF]


def test_tokens_are_allowed_behind_drafts_too() -> None:
    """D5."""
    scores = torch.randn(3, 10)
    sampled = sample(scores, with_drafts(SamplingParams(allowed_token_ids=(5, 8))))
    assert set(sampled.token_ids.tolist()) <= {5, 8}
    assert [torch.isfinite(row).nonzero().flatten().tolist() for row in scores] == [[5, 8]] * 3


def with_drafts(params: SamplingParams) -> Batch:
    """A row of prompt 1 2, known output 7 and drafts 5, 5: three samples."""
    batch = make_batch([params], [1], [[1, 2]], [[7]])
    batch.query_starts = np.array([0, 3], np.int32)
    batch.token_ids = np.array([7, 5, 5], np.int32)
    batch.positions = np.array([2, 3, 4], np.int32)
    batch.sample_index = np.arange(3, dtype=np.int32)
    batch.sample_rows = np.zeros(3, np.int32)
    batch.sample_output_positions = np.array([1, 2, 3], np.int32)
    return batch


def test_a_sample_behind_drafts_sees_them_before_a_bad_word() -> None:
    """D5."""
    bad = ((7, 5, 1), (5, 5, 2), (5, 3), (7, 4))
    scores = torch.zeros(3, 10)
    sample(scores, with_drafts(SamplingParams(temperature=0.0, bad_token_sequences=bad)))
    assert [(row == -INF).nonzero().flatten().tolist() for row in scores] == [[4], [1, 3], [2, 3]]


def test_a_sample_behind_drafts_counts_them_as_output() -> None:
    """The third sample has seen 5 twice, the first not at all."""
    batch = with_drafts(SamplingParams(temperature=0.0, frequency_penalty=1.0))
    scores = torch.zeros(3, 10)
    sample(scores, batch)
    assert scores[:, 5].tolist() == [0, -1, -2]
    assert scores[:, 7].tolist() == [-1, -1, -1]
    assert not scores[:, [0, 1, 2, 3, 4, 6, 8, 9]].any()


def test_logprobs_are_the_models_own() -> None:
    """Whatever the temperature, limits and penalties were."""
    logits = make_logits(50, 700)
    params = [
        SamplingParams(num_logprobs=i % 6, temperature=2.0, top_k=30, logit_bias={4: 50.0 * (i % 2)}, seed=i)
        for i in range(50)
    ]
    sampled = run(logits, params)
    expected = logits.double().log_softmax(-1)
    for i, token in enumerate(sampled.token_ids.tolist()):
        found = sampled.logprobs[i]
        best = expected[i].topk(i % 6)
        assert found.logprob == pytest.approx(float(expected[i, token]), abs=1e-5)
        assert found.rank == 1 + int((expected[i] > expected[i, token]).sum())
        assert found.top_token_ids == best.indices.tolist()
        assert found.top_logprobs == pytest.approx(best.values.tolist(), abs=1e-5)


def test_log_probabilities_of_tokens_that_were_named() -> None:
    """In their order, with or without others beside them, whichever token comes."""
    logits = make_logits(40, 700)
    named = (600, 3, 17)
    params = [
        SamplingParams(num_logprobs=i % 3, seed=i, logprob_token_ids=named if i % 2 else ())
        for i in range(40)
    ]
    sampled = run(logits, params)
    expected = logits.double().log_softmax(-1)
    for i in range(1, 40, 2):
        assert tuple(sampled.logprobs[i].top_token_ids) == named
        assert sampled.logprobs[i].top_logprobs == pytest.approx(expected[i, list(named)].tolist(), abs=1e-5)
    assert [len(sampled.logprobs[i].top_token_ids) for i in range(0, 40, 2)] == [
        i % 3 for i in range(0, 40, 2)
    ]


def test_no_logprobs_unless_asked_for() -> None:
    params = [GREEDY, SamplingParams(num_logprobs=0), SamplingParams()]
    sampled = run(make_logits(3, 100), params)
    assert list(sampled.logprobs) == [1]
    assert sampled.logprobs[1].top_token_ids == []


def test_logits_that_are_not_numbers_still_give_a_token() -> None:
    """One request's broken logits must not fail the step of all."""
    logits = make_logits(4, 100)
    logits[:3] = torch.nan
    params = [GREEDY, SamplingParams(), SamplingParams(top_p=0.5), SamplingParams(seed=3)]
    tokens = run(logits, params).token_ids
    assert ((tokens >= 0) & (tokens < 100)).all()
    assert is_inverse(int(tokens[3]), logits[3].double().numpy(), params[3], 3)
