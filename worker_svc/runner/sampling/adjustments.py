"""Changes to one row's logits before sampling: penalties, bias, and tokens that must not come now."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from worker_svc.core.batch import Batch
from worker_svc.core.requests.sampling import SamplingParams

I32 = NDArray[np.int32]


def adjust_logits(scores: torch.Tensor, batch: Batch, samples: NDArray[np.int64]) -> None:
    """Adjusts in place the rows of `scores` `[n, V]` that ask for it; they belong to `samples` `[n]`."""
    slots = batch.slots[batch.sample_rows[samples]]
    for i in np.flatnonzero(batch.sampling.adjusts[slots]).tolist():
        sample, slot = int(samples[i]), int(slots[i])
        params = batch.sampling.params[slot]
        assert params is not None, "a slot that adjusts has parameters"
        history = known_tokens(batch, sample)
        adjust_row(
            scores[i],
            params,
            history=history,
            output=history[batch.num_prompt_tokens[slot] :],
            output_position=int(batch.sample_output_positions[sample]),
        )


def known_tokens(batch: Batch, sample: int) -> I32:
    """Prompt and output ahead of a sample, with the drafts that the sample takes for granted."""
    row = int(batch.sample_rows[sample])
    slot = int(batch.slots[row])
    num_tokens = int(batch.num_tokens[slot])
    queries = slice(int(batch.query_starts[row]), int(batch.sample_index[sample]) + 1)
    drafts = batch.token_ids[queries][batch.positions[queries] >= num_tokens]
    return np.concatenate([batch.tokens[slot, :num_tokens], drafts])


def adjust_row(
    scores: torch.Tensor, params: SamplingParams, *, history: I32, output: I32, output_position: int
) -> None:
    """Adjusts `scores` `[V]` in place; `output` is the end of `history` (`[L]`)."""
    if params.repetition_penalty != 1.0:
        seen = _indices(np.unique(history), scores)
        chosen = scores[seen]
        penalty = params.repetition_penalty
        scores[seen] = torch.where(chosen > 0, chosen / penalty, chosen * penalty)
    if params.frequency_penalty != 0.0 or params.presence_penalty != 0.0:
        token_ids, counts = np.unique(output, return_counts=True)
        penalties = params.frequency_penalty * counts + params.presence_penalty
        scores[_indices(token_ids, scores)] -= torch.from_numpy(penalties).to(scores)
    if params.logit_bias:
        biased = {token: bias for token, bias in params.logit_bias.items() if 0 <= token < len(scores)}
        token_ids = np.fromiter(biased.keys(), np.int64, len(biased))
        scores[_indices(token_ids, scores)] += torch.tensor(list(biased.values())).to(scores)
    if params.allowed_token_ids:
        keep_allowed(scores, params.allowed)
    forbidden = params.forbidden(output.tolist(), output_position) if params.forbids else set()
    if forbidden:
        token_ids = np.array([token for token in forbidden if 0 <= token < len(scores)], np.int64)
        scores[_indices(token_ids, scores)] = -torch.inf


def keep_allowed(scores: torch.Tensor, allowed: NDArray[np.int64]) -> None:
    """Sets all of `scores` `[V]` but those of the tokens `allowed` `[n]` to -inf, in place."""
    index = _indices(allowed, scores)
    kept = scores[index]
    scores.fill_(-torch.inf)
    scores[index] = kept


def _indices(token_ids: NDArray[np.integer], scores: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(token_ids.astype(np.int64)).to(scores.device)
