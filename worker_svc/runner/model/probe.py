"""Proves at load that a model's steps run on the paged KV cache; some families ignore an attention function."""

from __future__ import annotations

import itertools
from contextlib import nullcontext

import numpy as np
import torch

from worker_svc.core.requests.state_versions import NOTHING
from worker_svc.runner.attention import attention
from worker_svc.runner.attention.attention import PagedBatch
from worker_svc.runner.attention.kv_cache import NO_KV, KVCache
from worker_svc.runner.cpu.direct_forward import DirectForward, Forward, ModuleForward, forward_of
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.head import CapturedStates, ModelHead
from worker_svc.runner.model.loading import LoadedModel
from worker_svc.runner.model.scored_model import ScoredModel, showing_states
from worker_svc.runner.recurrent.rows import StateRows
from worker_svc.runner.recurrent.store import StateStore

PROBE_TOKENS = 40
LONGEST_WINDOW = 512
"""Windows and chunks below this are always passed by the probe."""
MOST_PRODUCTS = 1 << 36
"""Weights times tokens up to which longer ones are passed, too: about a second on two cores. Above, what layers see is
known from their masks alone (`windows.check_visibility`)."""
MOST_SCORES = 1 << 27
"""Heads times tokens squared up to which they are passed: eager attention keeps so many numbers at a time."""
MOST_CHUNK = 256
"""Most tokens of a chunk."""
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
    """Runs a prompt through the cache by the forward of a step, in chunks and a decode step, each beside another
    request, and compares with eager attention.

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
    if expected is None:
        expected = eager_logits(model)
    error = relative_error(paged, expected)
    allowed = max(TOLERANCES[model.dtype], KEPT_TOLERANCE if model.num_kept else 0.0)
    if error <= allowed:
        return
    with showing_states(model.module):
        alone, _ = _paged_logits(model, token_ids, block_size, batch_class, has_neighbour=False)
    if relative_error(alone, expected) <= allowed:
        raise ModelLoadError(
            f"model_type {family!r} gives other logits beside another request than alone "
            f"(relative error {error:.2g}, allowed {allowed:.2g})."
        )
    if not bool(expected.isfinite().all()):
        raise ModelLoadError(f"model_type {family!r} gives logits that are not finite{_culprit(model)}.")
    raise ModelLoadError(
        f"model_type {family!r} gives other logits with paged attention than with eager attention "
        f"(relative error {error:.2g}, allowed {allowed:.2g})."
    )


def _culprit(model: LoadedModel) -> str:
    """The first weight with numbers that are not finite, for a message; empty: none has any."""
    names = (name for name, weight in model.module.named_parameters() if not bool(weight.isfinite().all()))
    name = next(names, None)
    return "" if name is None else f": the weight {name} has such numbers"


def probe_tokens(model: LoadedModel) -> torch.Tensor:
    """[1, T] tokens that a fixed rule picks from the whole vocabulary; longer than all sliding windows and chunks but
    those that are too much to compute."""
    passed = (w for w in model.windows if w < LONGEST_WINDOW or _can_pass(model, PROBE_TOKENS + w))
    length = PROBE_TOKENS + max(passed, default=0)
    positions = torch.arange(min(length, model.max_position_embeddings), device=model.device)
    return (positions * 7919 + 17)[None] % model.vocab_size


def _can_pass(model: LoadedModel, length: int) -> bool:
    """Whether so many tokens are computed in about a second. All stages of a model decide alike: none knows its whole
    size, and so they pass no long window; nor do their tokens differ beyond the vocabulary."""
    if model.split is not None:
        return False
    num_weights = sum(weight.numel() for weight in model.module.parameters())
    heads = int(getattr(model.module.config, "num_attention_heads", 1))
    return num_weights * length <= MOST_PRODUCTS and heads * length * length <= MOST_SCORES


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Root mean square difference in standard deviations of `expected`."""
    difference = actual.float() - expected.float()
    return float(difference.square().mean().sqrt() / expected.float().std().clamp_min(1e-30))


def _compared(length: int) -> torch.Tensor:
    return torch.arange(max(0, length - COMPARED_TOKENS), length)


@torch.inference_mode()
def eager_logits(model: LoadedModel) -> torch.Tensor:
    """Logits of the probe's last tokens by the model's own attention and positions, without a cache. ModelLoadError
    where the head gives others of hidden states that are known, as those of prompts are."""
    token_ids = probe_tokens(model)
    kept = _compared(token_ids.shape[1]).to(model.device)
    model.module.set_attn_implementation("eager")
    try:
        with showing_states(model.module):
            return _eager_logits(model, token_ids, kept)
    finally:
        model.module.set_attn_implementation(attention.IMPLEMENTATION)


def _eager_logits(model: LoadedModel, token_ids: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    # The model is not told of positions: some families begin to count at another one than 0.
    head = None if model.split is not None else ModelHead.of(model.module)
    with nullcontext(CapturedStates()) if head is None else head.capturing() as captured:
        output = model.module(input_ids=token_ids, use_cache=False, logits_to_keep=kept)
    logits: torch.Tensor = output.logits[0]
    if head is None:
        return logits
    error = relative_error(head.logits(captured, kept), logits)
    if error > TOLERANCES[model.dtype]:
        raise ModelLoadError(
            f"model_type {model.module.config.model_type!r} gives other logits of its last hidden states than in a "
            f"whole forward (relative error {error:.2g})."
        )
    return logits


def _paged_logits(
    model: LoadedModel,
    token_ids: torch.Tensor,
    block_size: int,
    batch_class: type[PagedBatch] = PagedBatch,
    *,
    has_neighbour: bool = True,
) -> tuple[torch.Tensor, set[int]]:
    """Logits of the last tokens, and the layers that called our attention."""
    length = token_ids.shape[1]
    probe = _Probe(model, token_ids[0], block_size, batch_class, _forward_of(model, length))
    logits, layers_called = [], set(range(len(model.layer_shapes)))
    for number, (start, end) in enumerate(_chunks(length)):
        found, called = probe.step(number, start, end, has_neighbour=has_neighbour)
        logits.append(found)
        layers_called &= called
    return torch.cat(logits), layers_called


def _forward_of(model: LoadedModel, num_positions: int) -> Forward:
    """The forward that steps have; with labels for a head, the one that shows hidden states."""
    is_scored = isinstance(model.module, ScoredModel)
    return ModuleForward(model.module) if is_scored else forward_of(model, num_positions)


class _Probe:
    """A prompt and another request, each with blocks and states of its own."""

    def __init__(
        self,
        model: LoadedModel,
        token_ids: torch.Tensor,
        block_size: int,
        batch_class: type[PagedBatch],
        forward: Forward,
    ) -> None:
        self._model, self._token_ids, self._forward = model, token_ids, forward
        self._batch_class = batch_class
        num_blocks = -(-len(token_ids) // block_size) + 2
        self._cache = KVCache(
            model.layer_shapes,
            num_blocks=num_blocks,
            block_size=block_size,
            dtype=model.dtype,
            device=model.device,
        )
        self._cache.fill(GARBAGE)
        # The prompt's block ids descend; of the other request one block stands at all places.
        self._tables = np.stack(
            [np.zeros(num_blocks - 2, np.int32), np.arange(num_blocks - 1, 1, -1, dtype=np.int32)]
        )
        self._store = StateStore(model.state_layout, num_slots=2, num_versions=2, device=model.device)
        self._store.fill(GARBAGE)

    def step(
        self, number: int, start: int, end: int, *, has_neighbour: bool
    ) -> tuple[torch.Tensor, set[int]]:
        """Computes the prompt's tokens `[start, end)`, in the step of that number. Logits `[N, V]` of those that are
        compared, and the layers that called our attention."""
        model, first = self._model, int(has_neighbour)
        rows = slice(1 - first, 2)
        starts = np.array([0, 1, 1 + end - start] if first else [0, end - start], np.int32)
        positions = np.concatenate([np.zeros(first), np.arange(start, end)]).astype(np.int32)
        source = number % 2 if number else NOTHING
        states = np.array([[NOTHING, source], [2 + number % 2, (number + 1) % 2]], np.int32)[:, rows]
        batch = self._batch_class(
            cache=self._cache,
            num_decode_rows=first + int(end - start == 1),
            query_starts=starts,
            positions=positions,
            block_tables=self._tables[rows],
            device=model.device,
            states=StateRows(self._store, starts, *states) if self._store.layout else None,
        )
        kept = _compared(len(self._token_ids)) - start
        wanted = kept[(kept >= 0) & (kept < end - start)] + first
        told = torch.arange(start, end, device=model.device)
        tokens = self._token_ids[start:end]
        if first:
            # The model is told of a far position: what it would choose by the longest one of a batch, it chooses now.
            told = torch.cat((told.new_tensor([self._far_position]), told))
            tokens = torch.cat((self._token_ids[:1], tokens))
        with attention.running(batch):
            logits = self._forward(tokens, told, wanted.to(model.device)).logits
        return logits, batch.layers_called

    @property
    def _far_position(self) -> int:
        """The last position that the forward can be told of."""
        if isinstance(self._forward, DirectForward):
            return len(self._token_ids) - 1
        return self._model.max_position_embeddings - 1


def _chunks(length: int) -> list[tuple[int, int]]:
    """Chunks of a prompt, two or more, cut off any block boundary, and one decode step."""
    step = min(length // 2 + 1, MOST_CHUNK + 1)
    cuts = sorted({*range(0, length - 1, step), length - 1, length})
    return list(itertools.pairwise(cuts))
