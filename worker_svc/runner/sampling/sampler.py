"""Chooses the next token of every sample, from its own logits, parameters and random number alone."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from worker_svc.core.batch import Batch, Sampled
from worker_svc.core.requests.sampling import NO_LOGPROBS
from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.cpu.native.choices import Choices
from worker_svc.runner.cpu.native.kernels import DTYPES, Kernels
from worker_svc.runner.sampling.adjustments import adjust_logits
from worker_svc.runner.sampling.logprobs import token_logprobs
from worker_svc.runner.sampling.masking import mask_logits
from worker_svc.runner.sampling.torch_draw import Limits, draw, take_rows
from worker_svc.runner.sampling.uniform import Purpose, uniforms

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

ELEMENTS_AT_ONCE = 1 << 21
"""Bounds temporaries of [rows, vocabulary]; above 32 MB malloc maps and clears them anew on every step."""
NO_MASKS = np.zeros((0, 0), np.uint32)


def sample(logits: torch.Tensor, batch: Batch) -> Sampled:
    """One token per row of `logits` `[N, V]`, and the log-probabilities wanted. May overwrite `logits`."""
    slots = batch.slots[batch.sample_rows]
    wants_logprobs = batch.sampling.num_logprobs[slots] != NO_LOGPROBS
    changed = batch.sampling.adjusts[slots] | wants_logprobs
    as_they_are, others = np.flatnonzero(~changed), np.flatnonzero(changed)
    sampled = Sampled(token_ids=np.empty(len(slots), np.int32))
    if len(as_they_are):
        sampled.token_ids[as_they_are] = choose(logits, as_they_are, batch, as_they_are)
    for samples in parts_of(others, logits.shape[1]):
        sample_some(logits, batch, samples, sampled)
    return sampled


def sample_some(logits: torch.Tensor, batch: Batch, samples: I64, sampled: Sampled) -> None:
    """Fills in the tokens of `samples` `[n]` after adjustments, and the log-probabilities wanted of them."""
    scores = take_rows(logits, samples).float()
    slots = batch.slots[batch.sample_rows[samples]]
    wanted = np.flatnonzero(batch.sampling.num_logprobs[slots] != NO_LOGPROBS)
    model_scores = scores[torch.from_numpy(wanted)]
    adjust_logits(scores, batch, samples)
    tokens = choose(scores, np.arange(len(samples)), batch, samples)
    sampled.token_ids[samples] = tokens
    if len(wanted):
        counts = batch.sampling.num_logprobs[slots[wanted]]
        rows = token_logprobs(model_scores, tokens[wanted], counts, listed_of(batch, slots[wanted]))
        sampled.logprobs.update(zip(samples[wanted].tolist(), rows, strict=True))


def listed_of(batch: Batch, slots: I32) -> dict[int, tuple[int, ...]]:
    """Tokens whose log-probabilities are asked for by their ids, by their place in `slots` `[n]`."""
    params = [batch.sampling.params[slot] for slot in slots.tolist()]
    return {i: each.logprob_token_ids for i, each in enumerate(params) if each and each.logprob_token_ids}


def choose(scores: torch.Tensor, rows: I64, batch: Batch, samples: I64) -> I64:
    """The tokens of `samples` `[n]`, whose scores are `rows` `[n]` of `scores` `[any, V]`, ascending.

    At temperature 0 the best (the first of equals), else drawn; never one that the sample's mask forbids, but where
    nothing that it allows is possible.
    """
    plain = batch.sampling.temperature[batch.slots[batch.sample_rows[samples]]] == 0
    if batch.masks is not None:
        plain &= batch.mask_index[samples] < 0
    if plain.all():
        return argmax(take_rows(scores, rows))
    kernels = kernels_for(scores)
    if kernels is not None:
        return kernels.choose(scores, choices_of(rows, batch, samples, scores.shape[1], kernels))
    tokens = np.empty(len(samples), np.int64)
    best = np.flatnonzero(plain)
    tokens[best] = argmax(take_rows(scores, rows[best]))
    for part in parts_of(np.flatnonzero(~plain), scores.shape[1]):
        tokens[part] = choose_with_torch(take_rows(scores, rows[part]).float(), batch, samples[part])
    return tokens


def choose_with_torch(scores: torch.Tensor, batch: Batch, samples: I64) -> I64:
    """The tokens of `samples` `[n]`, whose `scores` `[n, V]` are overwritten."""
    mask_logits(scores, batch, samples)
    slots, sampling = batch.slots[batch.sample_rows[samples]], batch.sampling
    tokens = np.empty(len(slots), np.int64)
    greedy = sampling.temperature[slots] == 0
    best, drawn = np.flatnonzero(greedy), np.flatnonzero(~greedy)
    if len(best):
        tokens[best] = argmax(take_rows(scores, best))
    if len(drawn):
        limits = Limits.of(sampling, slots[drawn], scores)
        numbers = uniforms(
            sampling.seed[slots[drawn]],
            sampling.choice_index[slots[drawn]],
            batch.sample_output_positions[samples[drawn]],
            Purpose.SAMPLE,
        )
        # What is not a number counts as impossible: a broken row still gives a token, and fails alone (`finite.py`).
        logits = take_rows(scores, drawn).nan_to_num(nan=-torch.inf, neginf=-torch.inf)
        tokens[drawn] = draw(logits, limits, torch.from_numpy(numbers).to(scores.device))
    return tokens


def choices_of(rows: I64, batch: Batch, samples: I64, vocab_size: int, kernels: Kernels) -> Choices:
    """What the kernel needs to know of `samples` `[n]`. Waits until their masks have been filled."""
    slots, sampling = batch.slots[batch.sample_rows[samples]], batch.sampling
    temperature = sampling.temperature[slots]
    numbers = (
        kernels.uniforms(
            sampling.seed[slots],
            sampling.choice_index[slots],
            batch.sample_output_positions[samples],
            Purpose.SAMPLE,
        )
        if temperature.any()
        else np.zeros(len(slots))
    )
    return Choices(
        rows=rows,
        temperature=temperature,
        top_k=sampling.top_k_of(slots, vocab_size),
        top_p=sampling.top_p[slots].astype(np.float64),
        min_p=sampling.min_p[slots],
        numbers=numbers,
        masks=NO_MASKS if batch.masks is None else batch.masks.bits(),
        mask_index=np.full(len(slots), -1, np.int32) if batch.masks is None else batch.mask_index[samples],
    )


def kernels_for(scores: torch.Tensor) -> Kernels | None:
    """The kernels, if they can read `scores` `[N, V]`."""
    can_read = scores.device.type == "cpu" and scores.dtype in DTYPES and scores.is_contiguous()
    return native_kernels() if can_read else None


def argmax(logits: torch.Tensor) -> I64:
    """The first best token of each row of `[N, V]`. torch alone is slow at it in bfloat16, and copies a lot."""
    kernels = kernels_for(logits)
    if kernels is not None:
        return kernels.argmax(logits)
    rows_at_once = max(1, ELEMENTS_AT_ONCE // logits.shape[1])
    parts = [rows.float().argmax(-1) for rows in torch.split(logits, rows_at_once)]
    return np.asarray(torch.cat(parts).cpu().numpy())


def parts_of(samples: I64, vocab_size: int) -> list[I64]:
    """`samples` in parts whose scores are `ELEMENTS_AT_ONCE`."""
    at_once = max(1, ELEMENTS_AT_ONCE // vocab_size)
    return [samples[start : start + at_once] for start in range(0, len(samples), at_once)]
