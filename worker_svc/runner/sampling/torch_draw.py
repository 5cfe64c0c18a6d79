"""Draws tokens with torch, on any device: where there are no kernels, and on a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from worker_svc.core.requests.sampling import SamplingTable

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

CANDIDATE_WIDTHS = (64, 1024)
"""How many of the best tokens are looked at before a row is sorted whole."""


def take_rows(values: torch.Tensor, rows: I64) -> torch.Tensor:
    """`values[rows]` for ascending `rows`, without a copy if those are all."""
    return values if len(rows) == values.shape[0] else values[torch.from_numpy(rows).to(values.device)]


@dataclass(frozen=True)
class Limits:
    """What the rows are drawn from; tensors `[n]` on the device of the logits."""

    temperature: torch.Tensor
    top_k: torch.Tensor
    """The likeliest tokens to draw from, between 1 and V; V keeps all."""
    top_p: torch.Tensor
    min_p: torch.Tensor

    @classmethod
    def of(cls, sampling: SamplingTable, slots: I32, scores: torch.Tensor) -> Limits:
        """The parameters of `slots`, for `scores` `[n, V]`."""
        top_k = sampling.top_k_of(slots, scores.shape[1])
        return cls(
            temperature=torch.from_numpy(sampling.temperature[slots]).to(scores.device),
            top_k=torch.from_numpy(top_k).to(scores.device),
            top_p=torch.from_numpy(sampling.top_p[slots].astype(np.float64)).to(scores.device),
            min_p=torch.from_numpy(sampling.min_p[slots]).to(scores.device),
        )

    def take(self, rows: I64) -> Limits:
        """The limits of ascending `rows`."""
        return Limits(
            take_rows(self.temperature, rows),
            take_rows(self.top_k, rows),
            take_rows(self.top_p, rows),
            take_rows(self.min_p, rows),
        )


def draw(scores: torch.Tensor, limits: Limits, numbers: torch.Tensor) -> I64:
    """Draws one token per row of `scores` `[n, V]` by the inverse distribution at `numbers` `[n]` in [0, 1).

    Order of the limits: temperature, top_k, top_p of what that left, min_p relative to the best token. Tokens
    are summed by id, or, in a row with limits, from the best one down.
    """
    vocab_size = scores.shape[1]
    # Shifted first, so that a temperature near zero leaves the best token at 0 and cannot overflow.
    shifted = scores - scores.amax(-1, keepdim=True)
    probs = (shifted / limits.temperature[:, None]).softmax(-1)
    limited = (limits.top_k < vocab_size) | (limits.top_p < 1) | (limits.min_p > 0)
    whole, cut = (np.flatnonzero(mask.cpu().numpy()) for mask in (~limited, limited))
    tokens = np.empty(len(scores), np.int64)
    if len(whole):
        tokens[whole] = invert(take_rows(probs, whole), take_rows(numbers, whole)).cpu().numpy()
    if len(cut):
        # The best token has weight 1 before normalisation.
        total = 1 / take_rows(probs, cut).amax(-1)
        tokens[cut] = draw_limited(take_rows(scores, cut), limits.take(cut), take_rows(numbers, cut), total)
    return tokens


def invert(probs: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """`[n]` first indices where the running sum of `probs` `[n, V]` exceeds the number's share of the sum."""
    sums = probs.cumsum(-1, dtype=torch.float64)
    found = torch.searchsorted(sums, (numbers * sums[:, -1])[:, None], right=True)[:, 0]
    return found.clamp_max(probs.shape[1] - 1)


def draw_limited(scores: torch.Tensor, limits: Limits, numbers: torch.Tensor, total: torch.Tensor) -> I64:
    """Draws from rows with limits, looking at no more of the best tokens than needed.

    `total` `[n]` is the weight of the whole vocabulary if that of the best token is 1.
    """
    vocab_size = scores.shape[1]
    tokens = np.empty(len(scores), np.int64)
    top_k = limits.top_k.cpu().numpy()
    waiting = np.arange(len(scores))
    for width in (*(w for w in CANDIDATE_WIDTHS if w < vocab_size), vocab_size):
        tried = waiting[(top_k[waiting] <= width) | (top_k[waiting] == vocab_size)]
        if len(tried):
            rows = take_rows(scores, tried)
            values = best_values(rows, width)
            index, enough = draw_from_best(
                values, limits.take(tried), take_rows(numbers, tried), take_rows(total, tried)
            )
            found = np.flatnonzero(enough.cpu().numpy())
            tokens[tried[found]] = tokens_at(
                take_rows(rows, found), take_rows(values, found), take_rows(index, found)
            )
            waiting = np.setdiff1d(waiting, tried[found])
    return tokens


def best_values(scores: torch.Tensor, width: int) -> torch.Tensor:
    """`[n, width]` best scores of each row of `[n, V]`, descending."""
    if width < scores.shape[1]:
        return scores.topk(width).values
    if scores.device.type == "cpu":  # numpy sorts with vector instructions, ten times as fast as torch
        ascending = np.sort(scores.numpy(), axis=-1)
        return torch.from_numpy(np.ascontiguousarray(ascending[:, ::-1]))
    return scores.sort(dim=-1, descending=True).values


def draw_from_best(
    values: torch.Tensor, limits: Limits, numbers: torch.Tensor, total: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draws from descending `values` `[n, width]`: `[n]` indices, and whether so many values were enough."""
    weights = ((values - values[:, :1]) / limits.temperature[:, None]).exp()
    sums = weights.cumsum(-1, dtype=torch.float64)
    width = values.shape[1]
    bounded = limits.top_k <= width
    mass = torch.where(bounded, sums.gather(1, limits.top_k.clamp_max(width)[:, None] - 1)[:, 0], total)
    wanted, floor = (limits.top_p * mass)[:, None], limits.min_p[:, None]
    ranks = torch.arange(width, device=values.device)
    # All three conditions hold for a beginning of the values, since the weights descend.
    kept = (ranks < limits.top_k[:, None]) & (sums - weights < wanted) & (weights >= floor)
    last = kept.sum(-1, keepdim=True).clamp_min(1) - 1
    target = numbers[:, None] * sums.gather(1, last)
    index = torch.searchsorted(sums, target, right=True).minimum(last)[:, 0]
    enough = bounded | (sums[:, -1] >= wanted[:, 0]) | (weights[:, -1] < floor[:, 0])
    return index, enough


def tokens_at(scores: torch.Tensor, values: torch.Tensor, index: torch.Tensor) -> I64:
    """`[n]` tokens of rank `index` `[n]` in `scores` `[n, V]`, whose best are `values`; equals by id."""
    value = values.gather(1, index[:, None])
    ordinal = index - (values > value).sum(-1)
    rows, tokens = (scores == value).nonzero(as_tuple=True)
    first = torch.searchsorted(rows, torch.arange(len(scores), device=scores.device))
    return np.asarray(tokens[first + ordinal].cpu().numpy())
