"""Sampling on the device, for samples that need no other host data than parameters and a random number.

The host sorts the samples into kinds beforehand, so that nothing on the device is waited for. The tokens are those
of `sampler.sample` for the same logits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from worker_svc.core.batch import Batch
from worker_svc.runner.cuda.transfers import upload
from worker_svc.runner.sampling.torch_draw import Limits, best_values, draw_from_best, invert
from worker_svc.runner.sampling.uniform import Purpose, uniforms

I64 = NDArray[np.int64]
MOST_CANDIDATES = 1024
"""A top_k above this, or none beside other limits, has the whole row sorted."""


@dataclass(frozen=True)
class Draws:
    """Samples that are drawn, n of them, on the device."""

    rows: torch.Tensor
    """[n] row of the logits that each sample is drawn from."""
    numbers: torch.Tensor
    """[n] float64 in [0, 1)"""
    limits: Limits

    def take(self, part: slice) -> Draws:
        """The draws of a part of the samples."""
        limits = Limits(
            self.limits.temperature[part],
            self.limits.top_k[part],
            self.limits.top_p[part],
            self.limits.min_p[part],
        )
        return Draws(self.rows[part], self.numbers[part], limits)


@dataclass(frozen=True)
class SamplingPlan:
    """How a step's samples are chosen; what is not drawn is the best."""

    draws: Draws | None
    num_whole: int
    """Draws without limits, which come first; those with limits follow."""
    num_candidates: int
    """Best tokens that the draws with limits look at."""


def plan_sampling(batch: Batch, vocab_size: int, device: torch.device) -> SamplingPlan:
    """The plan for all samples of `batch`. Uploads the parameters of those that are drawn."""
    table, slots = batch.sampling, batch.slots[batch.sample_rows]
    top_k = table.top_k_of(slots, vocab_size)
    drawn = table.temperature[slots] != 0
    limited = drawn & ((top_k < vocab_size) | (table.top_p[slots] < 1) | (table.min_p[slots] > 0))
    whole = np.flatnonzero(drawn & ~limited)
    rows = np.concatenate([whole, np.flatnonzero(limited)])
    if not len(rows):
        return SamplingPlan(None, 0, 0)
    chosen = slots[rows]
    numbers = uniforms(
        table.seed[chosen], table.choice_index[chosen], batch.sample_output_positions[rows], Purpose.SAMPLE
    )
    columns = [rows, numbers, top_k[rows], table.top_p[chosen].astype(np.float64)]
    row, number, k, p, temperature, min_p = upload(
        [*columns, table.temperature[chosen], table.min_p[chosen]], device
    )
    most = int(top_k[limited].max(initial=0))
    candidates = MOST_CANDIDATES if most <= MOST_CANDIDATES < vocab_size else vocab_size
    limits = Limits(temperature=temperature, top_k=k, top_p=p, min_p=min_p)
    return SamplingPlan(Draws(row, number, limits), len(whole), candidates)


def heaviest_plan(count: int, vocab_size: int, device: torch.device) -> SamplingPlan:
    """Draws for the logits `[count, V]` that take most memory: all with a limit that needs whole rows sorted."""
    ones = torch.ones(count, dtype=torch.float64, device=device)
    limits = Limits(
        temperature=ones.float(),
        top_k=torch.full((count,), vocab_size, device=device),
        top_p=ones * 0.9,
        min_p=torch.zeros(count, device=device),
    )
    return SamplingPlan(Draws(torch.arange(count, device=device), ones / 2, limits), 0, vocab_size)


def sample_on_device(logits: torch.Tensor, plan: SamplingPlan) -> torch.Tensor:
    """[N] int64 tokens for `logits` `[N, V]`."""
    tokens = logits.argmax(-1)
    if plan.draws is None:
        return tokens
    whole, limited = plan.draws.take(slice(plan.num_whole)), plan.draws.take(slice(plan.num_whole, None))
    if len(whole.rows):
        tokens[whole.rows] = draw_whole(scores_of(logits, whole), whole)
    if len(limited.rows):
        tokens[limited.rows] = draw_limited(scores_of(logits, limited), limited, plan.num_candidates)
    return tokens


def scores_of(logits: torch.Tensor, draws: Draws) -> torch.Tensor:
    """[n, V] float32; what is not a number counts as impossible, as in `sampler.choose`."""
    return logits[draws.rows].float().nan_to_num(nan=-torch.inf, neginf=-torch.inf)


def probabilities(scores: torch.Tensor, draws: Draws) -> torch.Tensor:
    """[n, V] after temperature, shifted first so that one near zero cannot overflow."""
    shifted = scores - scores.amax(-1, keepdim=True)
    return (shifted / draws.limits.temperature[:, None]).softmax(-1)


def draw_whole(scores: torch.Tensor, draws: Draws) -> torch.Tensor:
    """[n] tokens, summed by id."""
    return invert(probabilities(scores, draws), draws.numbers)


def draw_limited(scores: torch.Tensor, draws: Draws, num_candidates: int) -> torch.Tensor:
    """[n] tokens, summed from the best down; equals by id."""
    values = best_values(scores, num_candidates)
    total = 1 / probabilities(scores, draws).amax(-1)
    # As many candidates as top_k are always enough, and so is the whole row.
    index, _ = draw_from_best(values, draws.limits, draws.numbers, total)
    value = values.gather(1, index[:, None])
    ordinal = index - (values > value).sum(-1)
    equal = scores == value
    return ((equal.cumsum(-1) == ordinal[:, None] + 1) & equal).to(torch.uint8).argmax(-1)
