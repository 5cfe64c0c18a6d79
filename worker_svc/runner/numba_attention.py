"""Paged attention of decode rows on CPUs, compiled by numba: the cache is read in place."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import torch
from numba.extending import overload
from numpy.typing import NDArray

from worker_svc.runner.attention.kv_cache import LayerCache
from worker_svc.runner.attention.torch_attention import Scores

I32 = NDArray[np.int32]

# No "nnan" or "ninf": the running maximum starts at minus infinity.
FAST_MATH = {"reassoc", "contract", "arcp", "nsz"}


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`numba.njit`, with the machine code kept on disk where the file system allows it."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return numba.njit(cache=True, **options)(function)  # type: ignore[no-any-return]
        except RuntimeError:  # no writable place for the cache
            return numba.njit(**options)(function)  # type: ignore[no-any-return]

    return decorate


def _widen(source: Any, target: Any) -> None:
    """Copies a cached vector into an fp32 buffer; a bfloat16 is the upper half of a float32."""
    raise NotImplementedError


@overload(_widen, inline="always")
def _widen_by_type(source: Any, target: Any) -> Callable[[Any, Any], None]:
    if source.dtype == numba.types.uint16:

        def widen_bfloat16(source: Any, target: Any) -> None:
            bits = target.view(np.uint32)
            for i in range(source.shape[0]):
                bits[i] = np.uint32(source[i]) << np.uint32(16)

        return widen_bfloat16

    def copy_float32(source: Any, target: Any) -> None:
        for i in range(source.shape[0]):
            target[i] = source[i]

    return copy_float32


@compiled(fastmath=FAST_MATH)
def _attend_block(  # type: ignore[no-untyped-def]
    query, keys, values, low, high, scaling, best, total, out
):
    """Takes keys `[low, high)` of a block into a head's softmax: `best`, `total` `[1]`, `out` `[Dv]`."""
    products = np.empty(high - low, np.float32)
    block_best = best[0]
    for j in range(low, high):
        product = np.float32(0)
        for d in range(query.shape[0]):
            product += query[d] * keys[j, d]
        products[j - low] = product * scaling
        block_best = max(block_best, products[j - low])
    shrink = np.float32(math.exp(best[0] - block_best))
    weight_sum = total[0] * shrink
    for d in range(out.shape[0]):
        out[d] *= shrink
    for j in range(low, high):
        weight = np.float32(math.exp(products[j - low] - block_best))
        weight_sum += weight
        for d in range(out.shape[0]):
            out[d] += weight * values[j, d]
    best[0] = block_best
    total[0] = weight_sum


@compiled(fastmath=FAST_MATH)
def _attend_row_head(  # type: ignore[no-untyped-def]
    query, keys, values, out, start, end, positions, table, head, scaling, window
):
    """Query tokens `[start, end)` of a row, all heads of one KV head; each block is read once for them."""
    block_size, group = keys.shape[2], query.shape[1] // keys.shape[1]
    best = np.full((end - start, group, 1), -np.inf, np.float32)
    total = np.zeros((end - start, group, 1), np.float32)
    key_block = np.empty((block_size, keys.shape[3]), np.float32)
    value_block = np.empty((block_size, values.shape[3]), np.float32)
    out[start:end, head * group : (head + 1) * group] = 0
    first_key = max(0, positions[start] - window + 1)
    for column in range(first_key // block_size, positions[end - 1] // block_size + 1):
        block_start = column * block_size
        for j in range(min(block_size, positions[end - 1] + 1 - block_start)):
            _widen(keys[table[column], head, j], key_block[j])
            _widen(values[table[column], head, j], value_block[j])
        for t in range(start, end):
            low = max(0, positions[t] - window + 1 - block_start)
            high = min(block_size, positions[t] + 1 - block_start)
            if low < high:
                for g in range(group):
                    h = head * group + g
                    i = t - start
                    _attend_block(
                        query[t, h],
                        key_block,
                        value_block,
                        low,
                        high,
                        scaling,
                        best[i, g],
                        total[i, g],
                        out[t, h],
                    )
    for t in range(start, end):
        for g in range(group):
            out[t, head * group + g] /= total[t - start, g, 0]


@compiled(parallel=True, fastmath=FAST_MATH)
def _attend_rows(  # type: ignore[no-untyped-def]
    query, keys, values, out, query_starts, positions, block_tables, scaling, window
):
    """One task per row and KV head, so that no task's arithmetic depends on the batch or on the threads."""
    num_kv_heads = keys.shape[1]
    for task in numba.prange((query_starts.shape[0] - 1) * num_kv_heads):
        row = task // num_kv_heads
        _attend_row_head(
            query,
            keys,
            values,
            out,
            query_starts[row],
            query_starts[row + 1],
            positions,
            block_tables[row],
            task % num_kv_heads,
            scaling,
            window,
        )


def attend_decode_rows(
    query: torch.Tensor,
    layer: LayerCache,
    out: torch.Tensor,
    *,
    query_starts: I32,
    positions: I32,
    block_tables: I32,
    scores: Scores,
) -> None:
    """Attention of the R rows of `query_starts` `[R + 1]`, computed in fp32; writes `out[: query_starts[R]]`.

    `query` is `[T, Hq, D]`, `positions` `[T]`, `block_tables` `[R or more, W]`. A result depends neither on
    the other rows nor on the other query tokens of its row: a draft's attention is that of a decode token.
    """
    count = int(query_starts[-1])
    result = np.empty((count, *out.shape[1:]), np.float32)
    _attend_rows(
        query[:count].float().contiguous().numpy(),
        _as_numpy(layer.keys),
        _as_numpy(layer.values),
        result,
        np.ascontiguousarray(query_starts, np.int32),
        np.ascontiguousarray(positions, np.int32),
        np.ascontiguousarray(block_tables, np.int32),
        np.float32(scores.scaling),
        np.int64(1 << 40 if scores.sliding_window is None else scores.sliding_window),
    )
    out[:count] = torch.from_numpy(result)


def _as_numpy(cache: torch.Tensor) -> NDArray[Any]:
    """The cache itself, without a copy; bfloat16, which numpy lacks, as its bits."""
    viewed = cache.view(torch.uint16) if cache.dtype == torch.bfloat16 else cache
    return viewed.numpy()


def set_threads(threads: int) -> None:
    """Threads that the kernel uses; no more than numba was started with."""
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
