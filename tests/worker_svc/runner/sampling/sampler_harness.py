"""Batches for the sampler alone, and a float64 reference of the distribution that it draws from."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from worker_svc.core.batch import Batch, Sampled
from worker_svc.core.requests.sampling import SamplingParams, SamplingTable
from worker_svc.runner.sampling.sampler import sample
from worker_svc.runner.sampling.uniform import Purpose, uniforms

F64 = NDArray[np.float64]


def make_batch(
    params: list[SamplingParams],
    output_positions: list[int] | None = None,
    prompts: list[list[int]] | None = None,
    outputs: list[list[int]] | None = None,
) -> Batch:
    """Decode rows, one for each of `params`, in descending slots."""
    count = len(params)
    prompts, outputs = prompts or [[] for _ in params], outputs or [[] for _ in params]
    slots = np.arange(count, dtype=np.int32)[::-1].copy()
    table = SamplingTable(count)
    tokens = np.zeros((count, 64), np.int32)
    num_prompt, num_tokens = np.zeros(count, np.int32), np.zeros(count, np.int32)
    for i, slot in enumerate(slots):
        table.set(int(slot), params[i])
        known = prompts[i] + outputs[i]
        tokens[slot, : len(known)] = known
        num_prompt[slot], num_tokens[slot] = len(prompts[i]), len(known)
    index = np.arange(count, dtype=np.int32)
    return Batch(
        step_id=1,
        slots=slots,
        num_decode_rows=count,
        query_starts=np.arange(count + 1, dtype=np.int32),
        token_ids=np.zeros(count, np.int32),
        positions=num_tokens[slots] - 1,
        seq_lens=num_tokens[slots],
        block_tables=np.zeros((count, 1), np.int32),
        sample_index=index,
        sample_rows=index,
        sample_output_positions=index if output_positions is None else np.array(output_positions, np.int32),
        sampling=table,
        tokens=tokens,
        num_prompt_tokens=num_prompt,
        num_tokens=num_tokens,
    )


def run(logits: torch.Tensor, params: list[SamplingParams], **columns: list[int]) -> Sampled:
    """Samples from a copy of `logits` `[N, V]`."""
    return sample(logits.clone(), make_batch(params, **columns))  # type: ignore[arg-type]


def distribution(logits: F64, params: SamplingParams) -> F64:
    """`[V]` probabilities by the book: temperature, top_k, top_p, min_p, each on what the one before left."""
    scaled = logits / params.temperature
    probs = np.exp(scaled - scaled.max())
    order = np.lexsort((np.arange(len(probs)), -logits))
    if params.top_k:
        probs[order[params.top_k :]] = 0
    probs /= probs.sum()
    before = np.cumsum(probs[order]) - probs[order]
    probs[order[before >= params.top_p]] = 0
    probs[probs < params.min_p * probs.max()] = 0
    return np.asarray(probs / probs.sum())


def is_inverse(token: int, logits: F64, params: SamplingParams, output_position: int) -> bool:
    """True if `token` is where the distribution function crosses the request's number, give or take rounding.

    Limited distributions are summed from the best token down, others by token id.
    """
    probs = distribution(logits, params)
    limited = 0 < params.top_k < len(logits) or params.top_p < 1 or params.min_p > 0
    order = np.lexsort((np.arange(len(probs)), -logits)) if limited else np.arange(len(probs))
    sums = np.concatenate([[0], np.cumsum(probs[order])])
    seed = np.array([params.seed], np.uint64)
    number = uniforms(seed, [params.choice_index], [output_position], Purpose.SAMPLE)[0]
    place = int(np.flatnonzero(order == token)[0])
    return bool(probs[token] > 0 and sums[place] - 1e-5 <= number <= sums[place + 1] + 1e-5)
