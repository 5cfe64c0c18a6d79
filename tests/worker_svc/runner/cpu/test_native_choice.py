"""The kernel that chooses tokens, against a float64 reference, on every kind of CPU that it is built for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.worker_svc.runner.sampling.sampler_harness import distribution
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.runner.cpu.native.choices import Choices
from worker_svc.runner.cpu.native.kernels import Kernels

F64 = NDArray[np.float64]
INF = float("inf")
LARGEST = float(torch.finfo(torch.float32).max)
SIZES = [1, 15, 16, 17, 1000, 40_000]
LIMITS = [
    SamplingParams(),
    SamplingParams(temperature=0.05),
    SamplingParams(temperature=30.0),
    SamplingParams(top_k=1),
    SamplingParams(top_k=7),
    SamplingParams(top_k=900, temperature=2.0),
    SamplingParams(top_p=0.3),
    SamplingParams(top_p=0.95, temperature=0.7),
    SamplingParams(top_p=0.9999, temperature=3.0),
    SamplingParams(min_p=0.02),
    SamplingParams(min_p=1.0),
    SamplingParams(top_k=400, top_p=0.8, min_p=0.001),
]


def rows_of(kind: str, size: int) -> torch.Tensor:
    """[4, size] scores of one kind."""
    scores = 3 * torch.randn(4, size, generator=torch.Generator().manual_seed(size))
    if kind == "bfloat16":  # many are equal
        return scores.bfloat16()
    if kind == "all equal":
        return torch.zeros(4, size)
    if kind == "zeros of both signs":
        return scores.clamp(0, 1) * torch.tensor([1.0, -1.0]).repeat(size)[:size]
    if kind == "one far above":
        scores[:, size // 2] = LARGEST
    elif kind == "one far below":
        scores[:, size // 2] = -LARGEST
    elif kind == "impossible":
        scores[:, 1::3] = -INF
    elif kind == "far apart":
        scores = torch.sign(scores) * torch.exp(scores.abs() * 5)
    return scores


KINDS = [
    *("normal", "bfloat16", "all equal", "zeros of both signs", "one far above", "one far below"),
    *("impossible", "far apart"),
]


def choices_of(
    params: list[SamplingParams], numbers: F64, size: int, allowed: NDArray[np.bool_] | None = None
) -> Choices:
    """One per row of the scores, in order; `allowed` `[n, size]` become its masks."""
    count = len(params)
    masks, index = np.zeros((0, 0), np.uint32), np.full(count, -1, np.int32)
    if allowed is not None:
        padded = np.zeros((count, -(-size // 32) * 32), np.bool_)
        padded[:, :size] = allowed
        masks = np.packbits(padded, axis=1, bitorder="little").view(np.uint32)
        index = np.arange(count, dtype=np.int32)
    return Choices(
        rows=np.arange(count),
        temperature=np.array([p.temperature for p in params], np.float32),
        top_k=np.array([p.top_k if 0 < p.top_k < size else size for p in params], np.int64),
        top_p=np.array([p.top_p for p in params], np.float64),
        min_p=np.array([p.min_p for p in params], np.float32),
        numbers=np.asarray(numbers, np.float64),
        masks=masks,
        mask_index=index,
    )


def is_inverse(token: int, scores: F64, params: SamplingParams, number: float) -> bool:
    """True if `token` is where the distribution function crosses `number`, give or take rounding to float32.

    Of equal tokens the last may or may not be within top_p.
    """
    near = (params.top_p, params.top_p - 1e-7, params.top_p + 1e-7)
    return any(crosses(token, scores, replace(params, top_p=top_p), number) for top_p in near)


def crosses(token: int, scores: F64, params: SamplingParams, number: float) -> bool:
    probs = distribution(scores, params)
    limited = 0 < params.top_k < len(scores) or params.top_p < 1 or params.min_p > 0
    order = np.lexsort((np.arange(len(probs)), -scores)) if limited else np.arange(len(probs))
    place = int(np.flatnonzero(order == token)[0])
    sums = np.concatenate([[0], np.cumsum(probs[order])])
    return bool(sums[place] - 2e-6 <= number <= sums[place + 1] + 2e-6)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_a_token_is_the_inverse_of_the_distribution(kernels: Kernels, size: int, kind: str) -> None:
    """D4, D3: at the ends of [0, 1), too."""
    few = rows_of(kind, size)
    params = [each for each in LIMITS for _ in few]
    scores = few.repeat(len(LIMITS), 1)
    for numbers in (np.zeros(len(params)), np.linspace(0, 1 - 2**-53, len(params))):
        tokens = kernels.choose(scores, choices_of(params, numbers, size))
        for i, token in enumerate(tokens.tolist()):
            given = scores[i].double().numpy()
            assert given[token] > -INF
            assert is_inverse(token, given, params[i], numbers[i]), f"{params[i]} at {numbers[i]}"


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("params", [SamplingParams(temperature=0.0), *LIMITS], ids=str)
def test_a_mask_is_as_good_as_impossible_scores(
    kernels: Kernels, params: SamplingParams, dtype: torch.dtype
) -> None:
    size, count = 700, 24
    scores = torch.randn(count, size, generator=torch.Generator().manual_seed(1)).to(dtype)
    random = np.random.default_rng(2)
    allowed = random.random((count, size)) < 0.2
    masked = scores.masked_fill(torch.from_numpy(~allowed), -INF)
    numbers = random.random(count)
    tokens = kernels.choose(scores, choices_of([params] * count, numbers, size, allowed))
    assert allowed[np.arange(count), tokens].all()
    assert tokens.tolist() == kernels.choose(masked, choices_of([params] * count, numbers, size)).tolist()


def test_tokens_behind_a_mask_are_forbidden(kernels: Kernels) -> None:
    """The model's table may be longer than the vocabulary, which the masks are made for."""
    scores = torch.zeros(1, 200)
    scores[0, 150:] = 9.0
    for params in (SamplingParams(temperature=0.0), SamplingParams(), SamplingParams(top_k=5)):
        choices = choices_of([params], np.array([0.999]), 200)
        mask = replace(
            choices, masks=np.full((1, 3), 0xFFFFFFFF, np.uint32), mask_index=np.zeros(1, np.int32)
        )
        assert kernels.choose(scores, mask)[0] < 96


def test_rows_are_those_that_were_named(kernels: Kernels) -> None:
    scores = torch.full((5, 40), -INF)
    for row in range(5):
        scores[row, 7 * row] = 1.0
    params = [SamplingParams(temperature=float(i)) for i in range(3)]
    choices = replace(choices_of(params, np.full(3, 0.5), 40), rows=np.array([4, 0, 3]))
    assert kernels.choose(scores, choices).tolist() == [28, 0, 21]


@pytest.mark.sampled
@pytest.mark.parametrize("value", [-INF, float("nan")])
def test_a_row_of_nothing_possible_still_gives_a_token(kernels: Kernels, value: float) -> None:
    scores = torch.full((len(LIMITS), 100), value)
    tokens = kernels.choose(scores, choices_of(LIMITS, np.full(len(LIMITS), 0.7), 100))
    assert ((tokens >= 0) & (tokens < 100)).all()


@pytest.mark.sampled
@pytest.mark.parametrize("odd", [float("nan"), INF])
def test_what_is_not_a_number_hides_no_token(kernels: Kernels, odd: float) -> None:
    """A NaN is never drawn; an infinity is, and nothing else."""
    scores = torch.zeros(len(LIMITS), 50)
    scores[:, 20] = odd
    for number in (0.0, 0.41, 0.9999):
        tokens = kernels.choose(scores, choices_of(LIMITS, np.full(len(LIMITS), number), 50))
        assert (tokens == 20).all() if odd == INF else (tokens != 20).all()


@pytest.mark.sampled
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_token_depends_neither_on_threads_nor_on_other_rows(kernels: Kernels, threads: int) -> None:
    size, count = 3000, 4 * len(LIMITS)
    scores = torch.randn(count, size, generator=torch.Generator().manual_seed(3)).bfloat16()
    params, numbers = LIMITS * 4, np.random.default_rng(4).random(count)
    alone = [
        int(kernels.choose(scores[i : i + 1], choices_of(params[i : i + 1], numbers[i : i + 1], size))[0])
        for i in range(count)
    ]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        assert kernels.choose(scores, choices_of(params, numbers, size)).tolist() == alone
    finally:
        torch.set_num_threads(before)


def test_whatever_is_asked_for_the_token_is_one_of_the_rows(kernels: Kernels) -> None:
    """No temperature, however senseless, draws what is behind the last token, or forbidden."""
    size = 50
    scores = torch.randn(40, size, generator=torch.Generator().manual_seed(6))
    allowed = np.zeros((40, size), np.bool_)
    allowed[:, 10:40] = True
    for temperature in (-1.0, 1e-45, 1e38):
        params = [SamplingParams(temperature=temperature, top_k=7 * (i % 2)) for i in range(40)]
        tokens = kernels.choose(scores, choices_of(params, np.linspace(0, 0.999, 40), size, allowed))
        assert ((tokens >= 10) & (tokens < 40)).all(), temperature
