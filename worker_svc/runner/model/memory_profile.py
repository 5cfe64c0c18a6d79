"""Measures what a step of the largest size takes on a GPU beside weights and cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from worker_svc.core.batch import I32
from worker_svc.core.requests.state_versions import NOTHING
from worker_svc.runner.attention import attention
from worker_svc.runner.attention.attention import PagedBatch
from worker_svc.runner.attention.kv_cache import KVCache
from worker_svc.runner.model.loading import LoadedModel
from worker_svc.runner.model.memory import give_back
from worker_svc.runner.recurrent.rows import StateRows
from worker_svc.runner.recurrent.store import StateStore


def samples_nothing(logits: torch.Tensor) -> None:
    """Takes no memory."""


def graphs_of_nothing() -> int:
    """No bytes."""
    return 0


@dataclass(frozen=True)
class StepUses:
    """What a runner takes of a GPU's memory beside a forward."""

    sample: Callable[[torch.Tensor], object] = samples_nothing
    """Samples of a step's logits `[N, V]` as takes most memory."""
    graphs: Callable[[], int] = graphs_of_nothing
    """Measures the bytes that decode rows will take: in the runner's graphs, and in a step that is none."""


@torch.inference_mode()
def run_largest_step(
    model: LoadedModel, batch_class: type[PagedBatch], block_size: int, num_tokens: int
) -> torch.Tensor:
    """Runs `num_tokens` query tokens, prompts of one block each, which all lie in one block. Returns their logits."""
    cache = KVCache(
        model.layer_shapes, num_blocks=1, block_size=block_size, dtype=model.dtype, device=model.device
    )
    cache.fill(0)
    length = min(block_size, model.max_position_embeddings)
    starts = np.append(np.arange(0, num_tokens, length), num_tokens).astype(np.int32)
    positions = (np.arange(num_tokens) % length).astype(np.int32)
    batch = batch_class(
        cache=cache,
        num_decode_rows=0,
        query_starts=starts,
        positions=positions,
        block_tables=np.zeros((len(starts) - 1, 1), np.int32),
        device=model.device,
        states=rows_that_begin(model, starts),
    )
    with attention.running(batch):
        output = model.module(
            input_ids=torch.zeros((1, num_tokens), dtype=torch.int64, device=model.device),
            position_ids=torch.from_numpy(positions).to(model.device, torch.int64)[None],
            use_cache=False,
            logits_to_keep=torch.from_numpy(starts[1:] - 1).to(model.device, torch.int64),
        )
    return output.logits[0]  # type: ignore[no-any-return]


def rows_that_begin(model: LoadedModel, query_starts: I32) -> StateRows | None:
    """Rows that all leave their states in the same place; None: the model has no recurrent layers."""
    if not model.state_layout:
        return None
    store = StateStore(model.state_layout, num_slots=1, num_versions=1, device=model.device)
    count = len(query_starts) - 1
    return StateRows(store, query_starts, np.full(count, NOTHING, np.int32), np.zeros(count, np.int32))


def step_bytes(
    model: LoadedModel,
    batch_class: type[PagedBatch],
    block_size: int,
    num_tokens: int,
    sample: Callable[[torch.Tensor], object],
) -> int:
    """Peak of the memory that such a step and its samples take for a while on the model's GPU."""
    return peak_bytes(
        model.device, lambda: sample(run_largest_step(model, batch_class, block_size, num_tokens))
    )


@torch.inference_mode()
def peak_bytes(device: torch.device, run: Callable[[], object]) -> int:
    """The most that `run` has torch take of a GPU: whole segments, of which tensors are parts."""
    give_back(device)
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_reserved(device)
    run()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_reserved(device) - before
    give_back(device)
    return peak
