"""What a batch's prompts yield besides KV: log-probabilities of their tokens, and what pooling requests read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from numpy.typing import NDArray

from worker_svc.core.batch import Batch, QuerySpan, TokenLogprobs
from worker_svc.core.requests.pooling import LABEL_TASKS, TOKEN_TASKS, PoolingParams
from worker_svc.runner.model.head import CapturedStates, ModelHead
from worker_svc.runner.sampling.logprobs import token_logprobs

LOGITS_AT_ONCE = 1 << 24
"""Bounds the logits of prompt positions that are there at a time: 64 MB in float32, whatever the prompt."""
NO_GUARD = nullcontext()


def score_prompts(
    head: ModelHead,
    captured: CapturedStates,
    batch: Batch,
    alone: AbstractContextManager[object] = NO_GUARD,
) -> dict[int, list[TokenLogprobs]]:
    """Log-probabilities of the prompt tokens behind `batch.scored`, by row. `alone`: entered around each part of it
    that needs no other rank; where it lets no exception out, all logits are made nevertheless, and nothing is told."""
    if not batch.scored:
        return {}
    queries = np.concatenate([np.arange(span.start, span.end) for span in batch.scored])
    rows = np.repeat([span.row for span in batch.scored], [span.end - span.start for span in batch.scored])
    tokens: list[TokenLogprobs] = []
    for part, logits in _scored_logits(head, captured, queries):
        with alone:
            slots = batch.slots[rows[part]]
            targets = batch.tokens[slots, batch.positions[queries[part]] + 1].astype(np.int64)
            tokens += token_logprobs(logits.float(), targets, batch.sampling.num_prompt_logprobs[slots])
    return _split(tokens, batch.scored) if len(tokens) == len(queries) else {}


def follow_scores(head: ModelHead, captured: CapturedStates, batch: Batch) -> None:
    """Makes the logits that `score_prompts` makes at the rank that reads them: a part of each is ours."""
    if batch.scored:
        queries = np.concatenate([np.arange(span.start, span.end) for span in batch.scored])
        for _ in _scored_logits(head, captured, queries):
            pass


def _scored_logits(
    head: ModelHead, captured: CapturedStates, queries: NDArray[np.integer]
) -> Iterator[tuple[slice, torch.Tensor]]:
    """Logits of query tokens, some at a time."""
    at_once = max(1, LOGITS_AT_ONCE // head.vocab_size)
    for first in range(0, len(queries), at_once):
        part = slice(first, first + at_once)
        yield part, head.logits(captured, torch.from_numpy(queries[part]).to(captured.hidden.device))


def read_prompts(head: ModelHead, captured: CapturedStates, batch: Batch) -> dict[int, NDArray[np.float32]]:
    """What pooling requests read of each span, by row, as `Reading` takes it. The logits of a model with a
    classification head are the numbers of its labels."""
    by_kind: dict[tuple[bool, bool], list[QuerySpan]] = {}
    for span in batch.pooled:
        params = params_of(batch, span.row)
        kind = params.task in LABEL_TASKS, params.task in TOKEN_TASKS
        by_kind.setdefault(kind, []).append(span)
    results: dict[int, NDArray[np.float32]] = {}
    for (is_labels, is_tokens), spans in by_kind.items():
        states = _label_states(head, captured, spans) if is_labels else _hidden_states(captured, spans)
        if is_tokens or is_labels:
            values = states if is_tokens else [state[-1] for state in states]
        else:
            values = [state.sum(0, dtype=torch.float32) for state in states]
        lengths = [len(value) for value in values]
        parts = torch.cat([value.float() for value in values]).cpu().numpy()
        pieces = np.split(parts, np.cumsum(lengths)[:-1])
        results |= dict(zip([span.row for span in spans], pieces, strict=True))
    return results


def params_of(batch: Batch, row: int) -> PoolingParams:
    """How the pooling request of `row` is read."""
    params = batch.pooling[int(batch.slots[row])]
    assert params is not None, "a row that is pooled is a pooling request's"
    return params


def _hidden_states(captured: CapturedStates, spans: list[QuerySpan]) -> list[torch.Tensor]:
    return [captured.hidden[span.start : span.end] for span in spans]


def _label_states(head: ModelHead, captured: CapturedStates, spans: list[QuerySpan]) -> list[torch.Tensor]:
    """`[n, L]` for each span."""
    device = captured.hidden.device
    queries = torch.cat([torch.arange(span.start, span.end, device=device) for span in spans])
    return list(torch.split(head.logits(captured, queries), [span.end - span.start for span in spans]))


def _split(tokens: list[TokenLogprobs], spans: list[QuerySpan]) -> dict[int, list[TokenLogprobs]]:
    parts, first = {}, 0
    for span in spans:
        parts[span.row] = tokens[first : first + span.end - span.start]
        first += span.end - span.start
    return parts
