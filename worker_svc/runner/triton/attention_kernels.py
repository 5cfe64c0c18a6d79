"""The Triton kernels of paged attention: tiles of query tokens, and the joining of split contexts.

A program computes one item, a tile of one row's query tokens, for one KV head, or for some of the query heads that
share a latent; these query heads are folded into the tile's rows. Decode rows always take small tiles and cut the
context at fixed positions, whatever else is in the batch, so that a token's result depends on its own row alone. The
softmax is that of Milakov and Gimelshein (2018), the split one that of Dao et al., "Flash-Decoding" (2023).
"""

# ruff: noqa: N803
# fmt: off

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
SEES_ALL, SEES_WINDOW, SEES_CHUNK = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
"""What a query sees behind it: all positions, the last `reach` with its own, or those of its chunk of `reach`."""


@triton.jit  # type: ignore[untyped-decorator]
def _first_key(position, reach, SEES: tl.constexpr):  # type: ignore[no-untyped-def]
    """The first position that a query at `position` sees."""
    first = position * 0
    if SEES == SEES_WINDOW:
        first = tl.maximum(position - reach + 1, 0)
    if SEES == SEES_CHUNK:
        first = position // reach * reach
    return first


@triton.jit  # type: ignore[untyped-decorator]
def _merge(acc, best, total, other_acc, other_best, other_total):  # type: ignore[no-untyped-def]
    """Two parts of a softmax, in base 2, as one. A part that saw nothing has best -inf and total 0."""
    joint = tl.maximum(best, other_best)
    base = tl.where(joint == float("-inf"), 0.0, joint)
    scale, other_scale = tl.exp2(best - base), tl.exp2(other_best - base)
    acc = acc * scale[:, None] + other_acc * other_scale[:, None]
    return acc, joint, total * scale + other_total * other_scale


@triton.jit  # type: ignore[untyped-decorator]
def _finish(acc, best, total, sinks):  # type: ignore[no-untyped-def]
    """Weighted values from sums; `sinks` are scores in base 2 of a position without value, -inf for none."""
    acc, _, total = _merge(
        acc, best, total, tl.zeros_like(acc), sinks, tl.where(sinks == float("-inf"), 0.0, 1.0)
    )
    return acc / tl.where(total == 0.0, 1.0, total)[:, None]


@triton.jit  # type: ignore[untyped-decorator]
def _attend_tile(  # type: ignore[no-untyped-def]
    q, q_rest, keys, values, table, positions, key_start, key_end, key_stride, value_stride, scale, softcap, reach,
    BLOCK_SIZE: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, PAD_D: tl.constexpr, PAD_DV: tl.constexpr,
    TILE: tl.constexpr, KEYS: tl.constexpr, HAS_CAP: tl.constexpr, SEES: tl.constexpr,
    LATENT: tl.constexpr, WIDEN: tl.constexpr,
):
    """Sums `acc`, `best`, `total` of `q` at `positions` [TILE] over one head's keys [key_start, key_end).

    Strides are from block to block; a head's positions of a block are contiguous. Steps begin at multiples of KEYS,
    so that a query's sums do not depend on where its tile begins. `q` is [TILE, PAD_D]. LATENT: the first DV elements
    of a key are its value; `q` [TILE, PAD_DV] is for these, `q_rest` [TILE, PAD_D] for the others.
    """
    d, dv = tl.arange(0, PAD_D), tl.arange(0, PAD_DV)
    best = tl.full([TILE], float("-inf"), tl.float32)
    total = tl.zeros([TILE], tl.float32)
    acc = tl.zeros([TILE, PAD_DV], tl.float32)
    for start in range(key_start // KEYS * KEYS, key_end, KEYS):
        n = start + tl.arange(0, KEYS)
        there = (n >= key_start) & (n < key_end)
        block = tl.load(table + n // BLOCK_SIZE, mask=there, other=0).to(tl.int64)
        inside = n % BLOCK_SIZE
        k_at = block * key_stride + inside * D
        v_at = k_at
        if LATENT:
            k_at += DV
        else:
            v_at = block * value_stride + inside * DV
        v = tl.load(values + v_at[:, None] + dv[None, :], mask=there[:, None] & (dv < DV)[None, :], other=0.0)
        k = tl.load(
            keys + k_at[None, :] + d[:, None], mask=there[None, :] & (d < (D - DV if LATENT else D))[:, None],
            other=0.0,
        )
        if WIDEN:
            k, v = k.to(tl.float32), v.to(tl.float32)
        if LATENT:
            products = tl.dot(q_rest, k, input_precision="ieee")
            products = tl.dot(q, tl.trans(v), products, input_precision="ieee") * scale
        else:
            products = tl.dot(q, k, input_precision="ieee") * scale
        if HAS_CAP:
            products = softcap * (1.0 - 2.0 / (tl.exp2(products * (2.0 * LOG2_E / softcap)) + 1.0))
        seen = there[None, :] & (n[None, :] <= positions[:, None])
        if SEES != SEES_ALL:
            seen = seen & (n[None, :] >= _first_key(positions, reach, SEES)[:, None])
        products = tl.where(seen, products * LOG2_E, float("-inf"))
        joint = tl.maximum(best, tl.max(products, 1))
        base = tl.where(joint == float("-inf"), 0.0, joint)
        weights = tl.exp2(products - base[:, None])
        scaled = tl.exp2(best - base)
        total = total * scaled + tl.sum(weights, 1)
        acc = acc * scaled[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        best = joint
    return acc, best, total


@triton.jit  # type: ignore[untyped-decorator]
def _run_item(  # type: ignore[no-untyped-def]
    out, part_acc, part_sums, query, keys, values, items, positions, tables, sinks, item, kv_head, q_token,
    q_head, out_token, table_width, key_stride, value_stride, num_splits, scale, softcap, reach,
    NUM_HEADS: tl.constexpr, GROUP: tl.constexpr, BLOCK_SIZE: tl.constexpr, D: tl.constexpr,
    DV: tl.constexpr, PAD_D: tl.constexpr, PAD_DV: tl.constexpr, TILE: tl.constexpr, KEYS: tl.constexpr,
    SPLIT: tl.constexpr, PARTIAL: tl.constexpr, HAS_CAP: tl.constexpr, SEES: tl.constexpr,
    HAS_SINKS: tl.constexpr, LATENT: tl.constexpr, WIDEN: tl.constexpr,
):
    """One tile, or, if SPLIT, one split of its context; PARTIAL: its sums go to `part_acc` and `part_sums`."""
    row = tl.load(items + item * 4)
    first = tl.load(items + item * 4 + 1)
    count = tl.load(items + item * 4 + 2)
    split = tl.load(items + item * 4 + 3)
    first_position = tl.load(positions + first)
    key_start = _first_key(first_position, reach, SEES)
    key_end = first_position + count
    if SPLIT:
        key_start = tl.maximum(key_start, split * SPLIT)
        key_end = tl.minimum(key_end, (split + 1) * SPLIT)
    if key_start < key_end:
        m = tl.arange(0, TILE)
        tokens, heads = first + m // GROUP, kv_head * GROUP + m % GROUP
        valid = m // GROUP < count
        d, dv = tl.arange(0, PAD_D), tl.arange(0, PAD_DV)
        q_at = tokens.to(tl.int64) * q_token + heads * q_head
        key_head, value_head = kv_head.to(tl.int64) * BLOCK_SIZE * D, kv_head.to(tl.int64) * BLOCK_SIZE * DV
        if LATENT:  # one key for all heads
            key_head, value_head = key_head * 0, value_head * 0
            q = tl.load(query + q_at[:, None] + dv[None, :], mask=valid[:, None] & (dv < DV)[None, :], other=0.0)
            rest = query + q_at[:, None] + DV + d[None, :]
            q_rest = tl.load(rest, mask=valid[:, None] & (d < D - DV)[None, :], other=0.0)
        else:
            q = tl.load(query + q_at[:, None] + d[None, :], mask=valid[:, None] & (d < D)[None, :], other=0.0)
            q_rest = q
        if WIDEN:
            q, q_rest = q.to(tl.float32), q_rest.to(tl.float32)
        acc, best, total = _attend_tile(
            q, q_rest, keys + key_head, values + value_head,
            tables + row.to(tl.int64) * table_width, first_position + m // GROUP, key_start, key_end,
            key_stride, value_stride, scale, softcap, reach,
            BLOCK_SIZE, D, DV, PAD_D, PAD_DV, TILE, KEYS, HAS_CAP, SEES, LATENT, WIDEN,
        )
        at_dv = valid[:, None] & (dv < DV)[None, :]
        if PARTIAL:
            part = (tokens * NUM_HEADS + heads).to(tl.int64) * num_splits + split
            tl.store(part_acc + part[:, None] * DV + dv[None, :], acc, mask=at_dv)
            tl.store(part_sums + part * 2, best, mask=valid)
            tl.store(part_sums + part * 2 + 1, total, mask=valid)
        else:
            sink = tl.full([TILE], float("-inf"), tl.float32)
            if HAS_SINKS:
                sink = tl.load(sinks + heads, mask=valid, other=0.0).to(tl.float32) * LOG2_E
            result = _finish(acc, best, total, sink)
            out_at = tokens.to(tl.int64) * out_token + heads * DV
            tl.store(out + out_at[:, None] + dv[None, :], result.to(out.dtype.element_ty), mask=at_dv)


# What follows from the batch has no variants of its own: only the model, and four kinds of steps, have.
@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["num_chunk_items", "table_width", "num_splits", "reach"],
    do_not_specialize_on_alignment=["tables"],
)
def attend_kernel(  # type: ignore[no-untyped-def]
    out, part_acc, part_sums, query, keys, values, items, positions, tables, sinks, num_chunk_items,
    q_token, q_head, out_token, table_width, key_stride, value_stride, num_splits, scale, softcap, reach,
    NUM_HEADS: tl.constexpr, GROUP: tl.constexpr, BLOCK_SIZE: tl.constexpr, D: tl.constexpr,
    DV: tl.constexpr, PAD_D: tl.constexpr, PAD_DV: tl.constexpr, CHUNK_TILE: tl.constexpr,
    DECODE_TILE: tl.constexpr, KEYS: tl.constexpr, SPLIT: tl.constexpr, HAS_CHUNKS: tl.constexpr,
    PARTIAL: tl.constexpr, HAS_CAP: tl.constexpr, SEES: tl.constexpr, HAS_SINKS: tl.constexpr,
    LATENT: tl.constexpr, WIDEN: tl.constexpr,
):
    """Grid: (items, KV heads, or LATENT groups of heads). The first `num_chunk_items` items are tiles of chunks, the
    others of decode rows."""
    item, kv_head = tl.program_id(0), tl.program_id(1)
    if HAS_CHUNKS:  # noqa: SIM102 (this one is decided when the kernel is compiled)
        if item < num_chunk_items:
            _run_item(
                out, part_acc, part_sums, query, keys, values, items, positions, tables, sinks,
                item, kv_head, q_token, q_head, out_token, table_width, key_stride, value_stride,
                num_splits, scale, softcap, reach,
                NUM_HEADS, GROUP, BLOCK_SIZE, D, DV, PAD_D, PAD_DV, CHUNK_TILE, KEYS, 0, False,
                HAS_CAP, SEES, HAS_SINKS, LATENT, WIDEN,
            )
    if item >= num_chunk_items:
        _run_item(
            out, part_acc, part_sums, query, keys, values, items, positions, tables, sinks,
            item, kv_head, q_token, q_head, out_token, table_width, key_stride, value_stride,
            num_splits, scale, softcap, reach,
            NUM_HEADS, GROUP, BLOCK_SIZE, D, DV, PAD_D, PAD_DV, DECODE_TILE, KEYS, SPLIT, PARTIAL,
            HAS_CAP, SEES, HAS_SINKS, LATENT, WIDEN,
        )


@triton.jit(do_not_specialize=["num_splits", "reach"])  # type: ignore[untyped-decorator]
def join_kernel(  # type: ignore[no-untyped-def]
    out, part_acc, part_sums, positions, sinks, out_token, num_splits, reach, NUM_HEADS: tl.constexpr,
    DV: tl.constexpr, PAD_DV: tl.constexpr, SPLIT: tl.constexpr, SEES: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    """Grid: (decode tokens, query heads). Joins the splits of a context, in order."""
    token, head = tl.program_id(0), tl.program_id(1)
    position = tl.load(positions + token)
    first = _first_key(position, reach, SEES) // SPLIT
    dv, one = tl.arange(0, PAD_DV), tl.arange(0, 1)
    best = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    acc = tl.zeros([1, PAD_DV], tl.float32)
    for split in range(first, position // SPLIT + 1):
        part = (token * NUM_HEADS + head).to(tl.int64) * num_splits + split
        part_row = tl.load(part_acc + part * DV + dv[None, :], mask=(dv < DV)[None, :], other=0.0)
        part_best = tl.load(part_sums + part * 2 + one)
        part_total = tl.load(part_sums + part * 2 + 1 + one)
        acc, best, total = _merge(acc, best, total, part_row, part_best, part_total)
    sink = tl.full([1], float("-inf"), tl.float32)
    if HAS_SINKS:
        sink = tl.load(sinks + head + one).to(tl.float32) * LOG2_E
    result = _finish(acc, best, total, sink)
    out_at = token.to(tl.int64) * out_token + head * DV
    tl.store(out + out_at + dv[None, :], result.to(out.dtype.element_ty), mask=(dv < DV)[None, :])
