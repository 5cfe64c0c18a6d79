"""Sampling on the device gives the tokens of the sampler, without waiting for anything."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.worker_svc.runner.sampling.sampler_harness import make_batch
from worker_svc.core.batch import QuerySpan
from worker_svc.core.requests.masks import Masks
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.core.run_ahead import certainly_ended, is_granted, is_plain, samples_on_device
from worker_svc.runner.cuda import sampler
from worker_svc.runner.cuda.sampler import heaviest_plan, plan_sampling, sample_on_device
from worker_svc.runner.sampling.sampler import sample

CPU = torch.device("cpu")
MIXED = [
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=1.0, seed=1),
    SamplingParams(temperature=0.7, top_k=5, seed=2),
    SamplingParams(temperature=1.3, top_p=0.8, seed=3),
    SamplingParams(temperature=0.01, seed=4),
    SamplingParams(temperature=1.0, min_p=0.1, seed=5),
    SamplingParams(temperature=2.0, top_k=40, top_p=0.9, min_p=0.01, seed=6),
    SamplingParams(temperature=1.0, top_k=1, seed=7),
]
FEW = [p for p in MIXED if p.top_k]


def tokens_of(
    logits: torch.Tensor, params: list[SamplingParams], positions: list[int]
) -> tuple[list[int], list[int]]:
    """By the device's sampler, and by the host's."""
    batch = make_batch(params, positions)
    plan = plan_sampling(batch, logits.shape[1], CPU)
    return sample_on_device(logits, plan).tolist(), sample(logits.clone(), batch).token_ids.tolist()


@pytest.mark.parametrize(
    "params", [MIXED, FEW, MIXED[:1], MIXED[1:2]], ids=["mixed", "top_k", "greedy", "whole"]
)
@pytest.mark.parametrize("vocab_size", [600, 3000])
def test_tokens_are_those_of_the_sampler(params: list[SamplingParams], vocab_size: int) -> None:
    torch.manual_seed(vocab_size)
    seen = set()
    for step in range(40):
        logits = 3 * torch.randn(len(params), vocab_size)
        actual, expected = tokens_of(logits, params, [step] * len(params))
        assert actual == expected
        seen.update(actual)
    assert len(seen) > 20


def test_equal_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ties go by token id, also where the candidates end among them."""
    monkeypatch.setattr(sampler, "MOST_CANDIDATES", 64)
    torch.manual_seed(0)
    params = [SamplingParams(temperature=5.0, top_k=k, seed=k) for k in (2, 7, 50, 64)]
    for step in range(30):
        logits = torch.randint(0, 3, (len(params), 600)).float()
        actual, expected = tokens_of(logits, params, [step] * len(params))
        assert actual == expected


def test_a_broken_row_suffers_alone() -> None:
    torch.manual_seed(0)
    logits = torch.randn(len(MIXED), 600)
    sound, _ = tokens_of(logits, MIXED, [1] * len(MIXED))
    logits[3] = torch.nan
    actual, _ = tokens_of(logits, MIXED, [1] * len(MIXED))
    assert 0 <= actual[3] < 600
    assert actual[:3] + actual[4:] == sound[:3] + sound[4:]


def test_who_samples_on_the_device() -> None:
    params = [
        SamplingParams(temperature=0.5, top_p=0.5),
        SamplingParams(temperature=0.0, num_logprobs=2),
        SamplingParams(temperature=0.0, repetition_penalty=1.1),
        SamplingParams(temperature=0.0, logit_bias={3: 1.0}),
        SamplingParams(temperature=0.0),
    ]
    batch = make_batch(params)
    assert samples_on_device(batch).tolist() == [True, False, False, False, True]
    batch.mask_index = np.array([-1, -1, -1, -1, 0], np.int32)
    batch.masks = Masks([], batch.mask_index, num_masks=1, num_words=19)
    assert samples_on_device(batch).tolist() == [True, False, False, False, False]


def test_rules_of_running_ahead() -> None:
    """O5."""
    batch = make_batch([SamplingParams(temperature=0.5), SamplingParams(temperature=0.0)])
    assert is_plain(batch)
    batch.scored = [QuerySpan(0, 0, 1)]
    assert not is_plain(batch), "the host reads the prompt"
    assert not is_plain(make_batch([SamplingParams(temperature=0.0, presence_penalty=0.5)]))
    positions, blocks = np.array([7, 8], np.int32), np.array([2, 2], np.int32)
    assert is_granted(positions, blocks, 4).tolist() == [True, False]
    assert certainly_ended(np.array([8, 9]), np.array([10, 10])).tolist() == [False, True]


def test_the_heaviest_plan_sorts_whole_rows() -> None:
    """By it the memory of sampling is measured."""
    logits = torch.randn(5, 2048, generator=torch.Generator().manual_seed(3))
    plan = heaviest_plan(5, 2048, logits.device)
    assert plan.num_whole == 0 and plan.num_candidates == 2048
    tokens = sample_on_device(logits, plan)
    assert tokens.shape == (5,) and ((tokens >= 0) & (tokens < 2048)).all()
    assert (tokens != logits.argmax(-1)).any(), "they are drawn"
