"""What a batch's prompts yield besides KV: log-probabilities of their tokens, and sums of hidden states."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from worker_svc.core.batch import Batch, QuerySpan, TokenLogprobs
from worker_svc.runner.model.head import CapturedStates, ModelHead
from worker_svc.runner.sampling.logprobs import token_logprobs

LOGITS_AT_ONCE = 1 << 24
"""Bounds the logits of prompt positions that are there at a time: 64 MB in float32, whatever the prompt."""


def score_prompts(head: ModelHead, captured: CapturedStates, batch: Batch) -> dict[int, list[TokenLogprobs]]:
    """Log-probabilities of the prompt tokens behind `batch.scored`, by row."""
    if not batch.scored:
        return {}
    queries = np.concatenate([np.arange(span.start, span.end) for span in batch.scored])
    rows = np.repeat([span.row for span in batch.scored], [span.end - span.start for span in batch.scored])
    slots = batch.slots[rows]
    targets = batch.tokens[slots, batch.positions[queries] + 1].astype(np.int64)
    counts = batch.sampling.num_prompt_logprobs[slots]
    tokens: list[TokenLogprobs] = []
    at_once = max(1, LOGITS_AT_ONCE // head.vocab_size)
    for first in range(0, len(queries), at_once):
        part = slice(first, first + at_once)
        logits = head.logits(captured, torch.from_numpy(queries[part]).to(captured.hidden.device))
        tokens += token_logprobs(logits.float(), targets[part], counts[part])
    return _split(tokens, batch.scored)


def sum_hidden(captured: CapturedStates, spans: list[QuerySpan]) -> dict[int, NDArray[np.float32]]:
    """`[H]` float32 sum of the last hidden states of each span, by row."""
    if not spans:
        return {}
    hidden = captured.hidden
    sums = torch.stack([hidden[span.start : span.end].sum(0, dtype=torch.float32) for span in spans])
    return dict(zip([span.row for span in spans], sums.cpu().numpy(), strict=True))


def _split(tokens: list[TokenLogprobs], spans: list[QuerySpan]) -> dict[int, list[TokenLogprobs]]:
    parts, first = {}, 0
    for span in spans:
        parts[span.row] = tokens[first : first + span.end - span.start]
        first += span.end - span.start
    return parts
