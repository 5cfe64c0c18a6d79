"""Paged attention in Triton: chunks and decode rows in one launch, and a second one that joins split contexts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from worker_svc.runner.attention.kv_cache import LayerCache
from worker_svc.runner.attention.torch_attention import Scores
from worker_svc.runner.triton.attention_kernels import (
    SEES_ALL,
    SEES_CHUNK,
    SEES_WINDOW,
    attend_kernel,
    join_kernel,
)

SPLIT = 512
"""Positions of a decode row's context that one program looks at."""
SMALLEST_TILE = 16
"""Rows that a matrix product needs at least."""
CHUNK_TILE = 64
"""Rows of a prefill tile: queries times heads of the group."""
NUM_WARPS = 4
INTERPRETED = bool(triton.knobs.runtime.interpret)
"""Kernels run as numpy on the CPU. The interpreter's product of bfloat16 matrices is wrong, so they are widened."""


@dataclass(frozen=True)
class AttentionWork:
    """What a launch computes, on the device; the same for all layers of a kind."""

    items: torch.Tensor
    """[I, 4] int32: row, first query token, number of query tokens, split. Those of chunks come first."""
    num_chunk_items: int
    num_decode_tokens: int
    """Query tokens of decode rows, which are the first of the batch."""
    num_splits: int
    """Splits that a decode row may have; with 1 there is nothing to join."""
    positions: torch.Tensor
    """[T] int32: position of each query token in its sequence."""
    block_tables: torch.Tensor
    """[R, W] int32: block ids of each row."""
    split: int = SPLIT


def decode_tile(group: int) -> int:
    """Rows of a decode tile: at least one query token with all heads of its group."""
    return max(SMALLEST_TILE, round_up(group))


def chunk_tile(group: int, *, latent: bool = False) -> int:
    """Rows of a prefill tile; few of latents, whose sums would fill the registers."""
    return decode_tile(group) if latent else max(CHUNK_TILE, round_up(group))


def heads_per_program(query: torch.Tensor, layer: LayerCache) -> int:
    """Query heads `[T, Hq, D]` of a program: those of a KV head, of which a latent has more than a program can take."""
    num_heads = query.shape[1]
    if layer.values_in_keys:
        return math.gcd(num_heads, SMALLEST_TILE)
    return num_heads // layer.keys.shape[1]


def keys_per_step(layer: LayerCache) -> int:
    """Keys that a program takes at once: more would spill registers (as compiled for compute capability 9.0)."""
    widest = max(layer.keys.shape[3], layer.values.shape[3]) * layer.keys.dtype.itemsize
    return 64 if widest <= 128 else 32 if widest <= 256 else 16


def attend(query: torch.Tensor, layer: LayerCache, work: AttentionWork, scores: Scores) -> torch.Tensor:
    """Attention of all query tokens `[T, Hq, D]` over the cache. Returns `[T, Hq, Dv]`.

    Heads of any size, in the dtype of the cache, which has to be contiguous. No token's result depends on others.
    """
    query = query if query.stride(2) == 1 else query.contiguous()
    num_heads, value_dim = query.shape[1], layer.values.shape[3]
    out = query.new_empty((query.shape[0], num_heads, value_dim))
    # Where there is nothing to join, or there are no sinks, no kernel looks at what stands in their place.
    parts = make_parts(work, num_heads, value_dim, query.device) if work.num_splits > 1 else (out, out)
    sinks = out if scores.sinks is None else scores.sinks.contiguous()
    shared = {
        "reach": scores.sliding_window or scores.chunk or 0,
        "NUM_HEADS": num_heads,
        "DV": value_dim,
        "PAD_DV": pad(value_dim),
        "SPLIT": work.split,
        "SEES": seen_by(scores).value,
        "HAS_SINKS": scores.sinks is not None,
    }
    if len(work.items):
        launch_tiles(query, layer, work, scores, out, parts, sinks, shared)
    if work.num_splits > 1 and work.num_decode_tokens:
        join_kernel[(work.num_decode_tokens, num_heads)](
            out, *parts, work.positions, sinks, out.stride(0), work.num_splits, num_warps=1, **shared
        )
    return out


def launch_tiles(
    query: torch.Tensor,
    layer: LayerCache,
    work: AttentionWork,
    scores: Scores,
    out: torch.Tensor,
    parts: tuple[torch.Tensor, torch.Tensor],
    sinks: torch.Tensor,
    shared: dict[str, int | bool],
) -> None:
    """Runs all items: chunks write to `out`, decode rows to `out` or, if they have splits, to `parts`."""
    block_size, dim = layer.keys.shape[2:]
    group = heads_per_program(query, layer)
    attend_kernel[(len(work.items), query.shape[1] // group)](
        out,
        *parts,
        query,
        layer.keys,
        layer.values,
        work.items,
        work.positions,
        work.block_tables,
        sinks,
        num_chunk_items=work.num_chunk_items,
        q_token=query.stride(0),
        q_head=query.stride(1),
        out_token=out.stride(0),
        table_width=work.block_tables.stride(0),
        key_stride=layer.keys.stride(0),
        value_stride=layer.values.stride(0),
        num_splits=work.num_splits,
        scale=scores.scaling,
        softcap=scores.softcap or 1.0,
        GROUP=group,
        BLOCK_SIZE=block_size,
        D=dim,
        PAD_D=pad(dim - layer.values.shape[3] if layer.values_in_keys else dim),
        CHUNK_TILE=chunk_tile(group, latent=layer.values_in_keys),
        DECODE_TILE=decode_tile(group),
        KEYS=keys_per_step(layer),
        HAS_CHUNKS=work.num_chunk_items > 0,
        PARTIAL=work.num_splits > 1,
        HAS_CAP=scores.softcap is not None,
        LATENT=layer.values_in_keys,
        WIDEN=INTERPRETED,
        num_warps=NUM_WARPS,
        num_stages=2,
        **shared,
    )


def seen_by(scores: Scores) -> tl.constexpr:
    """What a query sees behind it, as the kernels are told."""
    assert scores.sliding_window is None or scores.chunk is None, "no model has both"
    if scores.chunk is not None:
        return SEES_CHUNK
    return SEES_ALL if scores.sliding_window is None else SEES_WINDOW


def make_parts(
    work: AttentionWork, num_heads: int, value_dim: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Room for the sums of all splits: weighted values, and the best score with the sum of weights, in float32."""
    count = work.num_decode_tokens * num_heads * work.num_splits
    acc = torch.empty((count, value_dim), dtype=torch.float32, device=device)
    return acc, torch.empty((count, 2), dtype=torch.float32, device=device)


def pad(dim: int) -> int:
    """The size of a tile that holds `dim` elements."""
    return max(SMALLEST_TILE, round_up(dim))


def round_up(count: int) -> int:
    """The power of two that holds `count`."""
    return 1 << (count - 1).bit_length()
