"""Log-probabilities of sampled tokens and of their best alternatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import torch
from numpy.typing import NDArray

from signalbox.protocol.sampling import MAX_LOGPROBS
from worker_svc.core.batch import TokenLogprobs


def token_logprobs(
    scores: torch.Tensor,
    tokens: NDArray[np.int64],
    counts: NDArray[np.uint8],
    listed: Mapping[int, Sequence[int]] = MappingProxyType({}),
) -> list[TokenLogprobs]:
    """Log-probabilities by the model's `scores` `[n, V]`: of `tokens`, `[n]`, and of as many best tokens as `counts`
    say. `listed`: tokens of which to tell instead of the best, by row."""
    logprobs = scores.log_softmax(-1)
    chosen = logprobs.gather(1, torch.from_numpy(tokens).to(scores.device)[:, None])
    ranks = (1 + (logprobs > chosen).sum(-1)).tolist()
    best, best_ids = best_tokens(logprobs, min(MAX_LOGPROBS, scores.shape[1]))
    columns = zip(
        chosen[:, 0].tolist(), ranks, best_ids.tolist(), best.tolist(), counts.tolist(), strict=True
    )
    rows = [
        TokenLogprobs(logprob=logprob, rank=rank, top_token_ids=ids[:count], top_logprobs=values[:count])
        for logprob, rank, ids, values, count in columns
    ]
    for row, ids in listed.items():
        values = logprobs[row, list(ids)].tolist()
        rows[row] = replace(rows[row], top_token_ids=list(ids), top_logprobs=values)
    return rows


def best_tokens(scores: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The best `width` of each row of `[n, V]`, descending, equals by index: scores and token ids.

    Which of several equal scores stay outside `width` is up to topk, but on a CPU not to the other rows.
    """
    values, tokens = scores.topk(width, sorted=False)
    tokens, order = tokens.sort(-1)
    values, order_by_score = values.gather(1, order).sort(dim=-1, descending=True, stable=True)
    return values, tokens.gather(1, order_by_score)
