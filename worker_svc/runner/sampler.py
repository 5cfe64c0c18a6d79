"""Chooses the next token of every sample, from its own logits, parameters and random number alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from worker_svc.core.batch import Batch, Sampled, TokenLogprobs
from worker_svc.core.sampling import MAX_LOGPROBS, NO_LOGPROBS, SamplingTable
from worker_svc.runner.adjustments import adjust_logits
from worker_svc.runner.uniform import Purpose, uniforms

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

ROWS_AT_ONCE = 32
"""Bounds the temporaries of [rows, vocabulary]; larger ones cost page faults on every step."""
CANDIDATE_WIDTHS = (64, 1024)
"""How many of the best tokens are looked at before a row is sorted whole."""


def sample(logits: torch.Tensor, batch: Batch) -> Sampled:
    """One token per row of `logits` `[N, V]`, and the log-probabilities wanted. May overwrite `logits`."""
    sampled = Sampled(token_ids=np.empty(len(batch.sample_rows), np.int32))
    for start in range(0, len(batch.sample_rows), ROWS_AT_ONCE):
        end = min(start + ROWS_AT_ONCE, len(batch.sample_rows))
        scores = logits[start:end].float()
        slots = batch.slots[batch.sample_rows[start:end]]
        wanted = np.flatnonzero(batch.sampling.num_logprobs[slots] != NO_LOGPROBS)
        model_scores = scores[torch.from_numpy(wanted)]
        adjust_logits(scores, batch, start)
        tokens = choose(scores, slots, batch.sample_output_positions[start:end], batch.sampling)
        sampled.token_ids[start:end] = tokens
        if len(wanted):
            rows = token_logprobs(model_scores, tokens[wanted], batch.sampling.num_logprobs[slots[wanted]])
            sampled.logprobs.update(zip((wanted + start).tolist(), rows, strict=True))
    return sampled


def choose(scores: torch.Tensor, slots: I32, output_positions: I32, sampling: SamplingTable) -> I64:
    """The token of each row of `scores` `[n, V]`: at temperature 0 the best (first of equals), else drawn."""
    tokens = np.empty(len(slots), np.int64)
    greedy = sampling.temperature[slots] == 0
    best, drawn = np.flatnonzero(greedy), np.flatnonzero(~greedy)
    if len(best):
        tokens[best] = take_rows(scores, best).argmax(-1).cpu().numpy()
    if len(drawn):
        limits = Limits.of(sampling, slots[drawn], scores)
        numbers = uniforms(
            sampling.seed[slots[drawn]],
            sampling.choice_index[slots[drawn]],
            output_positions[drawn],
            Purpose.SAMPLE,
        )
        tokens[drawn] = draw(take_rows(scores, drawn), limits, torch.from_numpy(numbers).to(scores.device))
    return tokens


def take_rows(values: torch.Tensor, rows: I64) -> torch.Tensor:
    """`values[rows]` for ascending `rows`, without a copy if those are all."""
    return values if len(rows) == values.shape[0] else values[torch.from_numpy(rows).to(values.device)]


@dataclass(frozen=True)
class Limits:
    """What the rows are drawn from; tensors `[n]` on the device of the logits."""

    temperature: torch.Tensor
    top_k: torch.Tensor
    """Between 1 and V; V keeps all tokens."""
    top_p: torch.Tensor
    min_p: torch.Tensor

    @classmethod
    def of(cls, sampling: SamplingTable, slots: I32, scores: torch.Tensor) -> Limits:
        """The parameters of `slots`, for `scores` `[n, V]`."""
        vocab_size = scores.shape[1]
        top_k = sampling.top_k[slots].astype(np.int64)
        top_k = np.where((top_k <= 0) | (top_k > vocab_size), vocab_size, top_k)
        return cls(
            temperature=torch.from_numpy(sampling.temperature[slots]).to(scores.device),
            top_k=torch.from_numpy(top_k).to(scores.device),
            top_p=torch.from_numpy(sampling.top_p[slots].astype(np.float64)).to(scores.device),
            min_p=torch.from_numpy(sampling.min_p[slots]).to(scores.device),
        )

    def take(self, rows: I64) -> Limits:
        return Limits(
            take_rows(self.temperature, rows),
            take_rows(self.top_k, rows),
            take_rows(self.top_p, rows),
            take_rows(self.min_p, rows),
        )


def draw(scores: torch.Tensor, limits: Limits, numbers: torch.Tensor) -> I64:
    """Draws one token per row of `scores` `[n, V]` by the inverse distribution at `numbers` `[n]` in [0, 1).

    Order of the limits: temperature, top_k, top_p of what that left, min_p relative to the best token.
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
    for width in (*CANDIDATE_WIDTHS, vocab_size):
        tried = cut[_may_suffice(limits.top_k.cpu().numpy()[cut], width, vocab_size)]
        if len(tried) and width <= vocab_size:
            found, decided = draw_from_best(
                take_rows(scores, tried),
                take_rows(probs, tried),
                limits.take(tried),
                take_rows(numbers, tried),
                width,
            )
            tokens[tried[decided]] = found[decided]
            cut = np.setdiff1d(cut, tried[decided])
    return tokens


def _may_suffice(top_k: I64, width: int, vocab_size: int) -> NDArray[np.bool_]:
    """Rows that the best `width` tokens may suffice for: by their top_k, or perhaps by top_p or min_p."""
    return np.asarray((top_k <= width) | (top_k == vocab_size))


def invert(probs: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """`[n]` first indices where the running sum of `probs` `[n, V]` exceeds the number's share of the sum."""
    sums = probs.cumsum(-1, dtype=torch.float64)
    found = torch.searchsorted(sums, (numbers * sums[:, -1])[:, None], right=True)[:, 0]
    return found.clamp_max(probs.shape[1] - 1)


def draw_from_best(
    scores: torch.Tensor, probs: torch.Tensor, limits: Limits, numbers: torch.Tensor, width: int
) -> tuple[I64, NDArray[np.bool_]]:
    """Draws from the best `width` tokens of each row: `[n]` tokens, and whether `width` was enough."""
    _, candidates = best_tokens(scores, width)
    chosen = probs.gather(1, candidates)
    sums = chosen.cumsum(-1, dtype=torch.float64)
    bounded = limits.top_k <= width
    mass = torch.where(bounded, sums.gather(1, limits.top_k.clamp_max(width)[:, None] - 1)[:, 0], 1.0)
    wanted, floor = (limits.top_p * mass)[:, None], (limits.min_p * chosen[:, 0])[:, None]
    ranks = torch.arange(width, device=scores.device)
    # All three keep a beginning of the candidates, for these descend.
    kept = (ranks < limits.top_k[:, None]) & (sums - chosen < wanted) & (chosen >= floor)
    num_kept = kept.sum(-1, keepdim=True).clamp_min(1)
    target = numbers[:, None] * sums.gather(1, num_kept - 1)
    index = torch.searchsorted(sums, target, right=True).minimum(num_kept - 1)
    enough = bounded | (sums[:, -1] >= wanted[:, 0]) | (chosen[:, -1] < floor[:, 0])
    return candidates.gather(1, index)[:, 0].cpu().numpy(), enough.cpu().numpy()


def best_tokens(scores: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The best `width` of each row of `[n, V]`, descending, equals by index: scores and token ids.

    Which of several equal scores stay outside `width` is up to topk, but does not depend on the other rows.
    """
    if width >= scores.shape[1]:
        return scores.sort(dim=-1, descending=True, stable=True)
    values, tokens = scores.topk(width, sorted=False)
    tokens, order = tokens.sort(-1)
    values, order_by_score = values.gather(1, order).sort(dim=-1, descending=True, stable=True)
    return values, tokens.gather(1, order_by_score)


def token_logprobs(scores: torch.Tensor, tokens: I64, counts: NDArray[np.uint8]) -> list[TokenLogprobs]:
    """Log-probabilities, by the model's `scores` `[n, V]`, of `tokens` and the best `counts` tokens."""
    logprobs = scores.log_softmax(-1)
    chosen = logprobs.gather(1, torch.from_numpy(tokens).to(scores.device)[:, None])
    ranks = (1 + (logprobs > chosen).sum(-1)).tolist()
    best, best_ids = best_tokens(logprobs, min(MAX_LOGPROBS, scores.shape[1]))
    columns = zip(
        chosen[:, 0].tolist(), ranks, best_ids.tolist(), best.tolist(), counts.tolist(), strict=True
    )
    return [
        TokenLogprobs(logprob=logprob, rank=rank, top_token_ids=ids[:count], top_logprobs=values[:count])
        for logprob, rank, ids, values, count in columns
    ]
