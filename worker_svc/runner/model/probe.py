"""Proves at load that a model runs on the paged KV cache; some families ignore an attention function."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from worker_svc.core.requests.state_versions import NOTHING
from worker_svc.runner.attention import attention
from worker_svc.runner.attention.attention import PagedBatch
from worker_svc.runner.attention.kv_cache import NO_KV, KVCache
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.loading import LoadedModel
from worker_svc.runner.model.scored_model import showing_states
from worker_svc.runner.recurrent.rows import StateRows
from worker_svc.runner.recurrent.store import StateStore

PROBE_TOKENS = 40
LONGEST_WINDOW = 512
"""Sliding windows below this are passed by the probe; longer ones would make loading slow."""
GARBAGE = 1e4
COMPARED_TOKENS = 4
TOLERANCES = {torch.float32: 1e-3, torch.bfloat16: 0.1}
KEPT_TOLERANCE = 1e-2
"""Least tolerance where rows are rounded to whole numbers: a small difference can become one code, in each layer."""


@torch.inference_mode()
def check_paged_attention(
    model: LoadedModel,
    block_size: int,
    expected: torch.Tensor | None = None,
    batch_class: type[PagedBatch] = PagedBatch,
) -> None:
    """Runs a prompt through the cache, in two chunks and a decode step, and compares with eager attention.

    `expected` are the `eager_logits`, if the model has changed since; `batch_class` says which kernels run.
    ModelLoadError if a layer did not call our attention, or if the logits differ by more than rounding.
    """
    token_ids = probe_tokens(model)
    with showing_states(model.module):
        paged, layers_called = _paged_logits(model, token_ids, block_size, batch_class)
    mixing = {
        i for i, shape in enumerate(model.layer_shapes) if shape != NO_KV
    } | model.state_layout.layers.keys()
    not_called = sorted(mixing - layers_called)
    family = model.module.config.model_type
    if not_called:
        raise ModelLoadError(
            f"model_type {family!r} does not use the paged attention in layer {not_called[0]} "
            f"({len(not_called)} such layers)."
        )
    error = relative_error(paged, eager_logits(model) if expected is None else expected)
    allowed = max(TOLERANCES[model.dtype], KEPT_TOLERANCE if model.num_kept else 0.0)
    if not error <= allowed:  # also when it is not a number
        raise ModelLoadError(
            f"model_type {family!r} gives other logits with paged attention than with eager attention "
            f"(relative error {error:.2g}, allowed {allowed:.2g})."
        )


def probe_tokens(model: LoadedModel) -> torch.Tensor:
    """[1, T] tokens that a fixed rule picks from the whole vocabulary; longer than a short sliding window."""
    window = model.sliding_window
    length = PROBE_TOKENS if window is None or window >= LONGEST_WINDOW else PROBE_TOKENS + window
    positions = torch.arange(min(length, model.max_position_embeddings), device=model.device)
    return (positions * 7919 + 17)[None] % model.vocab_size


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Root mean square difference in standard deviations of `expected`."""
    difference = actual.float() - expected.float()
    return float(difference.square().mean().sqrt() / expected.float().std().clamp_min(1e-30))


def _compared(length: int) -> torch.Tensor:
    return torch.arange(max(0, length - COMPARED_TOKENS), length)


@torch.inference_mode()
def eager_logits(model: LoadedModel) -> torch.Tensor:
    """Logits of the probe's last tokens by the model's own attention, without a cache."""
    token_ids = probe_tokens(model)
    model.module.set_attn_implementation("eager")
    try:
        positions = torch.arange(token_ids.shape[1], device=model.device)[None]
        with showing_states(model.module):
            output = model.module(
                input_ids=token_ids,
                position_ids=positions,
                use_cache=False,
                logits_to_keep=_compared(token_ids.shape[1]).to(model.device),
            )
    finally:
        model.module.set_attn_implementation(attention.IMPLEMENTATION)
    return output.logits[0]  # type: ignore[no-any-return]


def _paged_logits(
    model: LoadedModel,
    token_ids: torch.Tensor,
    block_size: int,
    batch_class: type[PagedBatch] = PagedBatch,
) -> tuple[torch.Tensor, set[int]]:
    """Logits of the last tokens, and the layers that called our attention. The block ids descend."""
    length = token_ids.shape[1]
    num_blocks = -(-length // block_size) + 1
    cache = KVCache(
        model.layer_shapes,
        num_blocks=num_blocks,
        block_size=block_size,
        dtype=model.dtype,
        device=model.device,
    )
    cache.fill(GARBAGE)
    table = np.arange(num_blocks - 1, 0, -1, dtype=np.int32)[None]
    logits, layers_called = [], set(range(len(model.layer_shapes)))
    store = StateStore(model.state_layout, num_slots=1, num_versions=2, device=model.device)
    store.fill(GARBAGE)
    for number, (start, end) in enumerate(_chunks(length)):
        rows = np.array([[number % 2 if number else NOTHING], [(number + 1) % 2]], np.int32)
        batch = batch_class(
            cache=cache,
            num_decode_rows=int(end - start == 1),
            query_starts=np.array([0, end - start], np.int32),
            positions=np.arange(start, end, dtype=np.int32),
            block_tables=table,
            device=model.device,
            states=StateRows(store, np.array([0, end - start], np.int32), *rows) if store.layout else None,
        )
        kept = _compared(length) - start
        with attention.running(batch):
            output = model.module(
                input_ids=token_ids[:, start:end],
                position_ids=torch.arange(start, end, device=model.device)[None],
                use_cache=False,
                logits_to_keep=kept[(kept >= 0) & (kept < end - start)].to(model.device),
            )
        logits.append(output.logits[0])
        layers_called &= batch.layers_called
    return torch.cat(logits), layers_called


def _chunks(length: int) -> list[tuple[int, int]]:
    """Two chunks of a prompt, cut off any block boundary, and one decode step."""
    cuts = sorted({0, length // 2 + 1, length - 1, length})
    return list(itertools.pairwise(cuts))
