"""The Triton kernel of gated delta rules: a decay for each head (Yang et al., "Gated Delta Networks", 2024), or for
each channel of its keys (Kimi Delta Attention)."""

# ruff: noqa: N803
# fmt: off

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from worker_svc.runner.recurrent.columns import StateColumns
from worker_svc.runner.triton.attention import round_up
from worker_svc.runner.triton.states.softplus import softplus

VALUES = 32
"""Elements of a head's values that a program takes: as many columns of its state, which stay in registers."""
NORM_EPSILON = tl.constexpr(1e-6)


@triton.jit  # type: ignore[untyped-decorator]
def delta_kernel(  # type: ignore[no-untyped-def]
    out, query, key, value, decays, updates, rates, biases, states, query_starts, sources, targets, q_token, v_token,
    decay_token, update_token, update_scale, NUM_HEADS: tl.constexpr, GROUP: tl.constexpr, DK: tl.constexpr,
    DV: tl.constexpr, PAD_DK: tl.constexpr, BLOCK_DV: tl.constexpr, PER_CHANNEL: tl.constexpr,
):
    """Grid: (rows, value heads, parts of a head's values). GROUP value heads share a key head."""
    row, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    i, j = tl.arange(0, PAD_DK), part * BLOCK_DV + tl.arange(0, BLOCK_DV)
    is_key, is_value = i < DK, j < DV
    inside = is_key[:, None] & is_value[None, :]
    start, end = tl.load(query_starts + row).to(tl.int64), tl.load(query_starts + row + 1).to(tl.int64)
    source, target = tl.load(sources + row).to(tl.int64), tl.load(targets + row).to(tl.int64)
    place = head * DK * DV + i[:, None] * DV + j[None, :]
    size = NUM_HEADS * DK * DV
    state = tl.load(states + source * size + place, mask=inside & (source >= 0), other=0.0)
    rate = tl.exp(tl.load(rates + head).to(tl.float32))
    if PER_CHANNEL:
        bias = tl.load(biases + head * DK + i, mask=is_key, other=0.0).to(tl.float32)
    else:
        bias = tl.load(biases + head).to(tl.float32)
    for token in range(start, end):
        at = token * q_token + head // GROUP * DK + i
        q = tl.load(query + at, mask=is_key, other=0.0).to(tl.float32)
        k = tl.load(key + at, mask=is_key, other=0.0).to(tl.float32)
        q = q / tl.sqrt(tl.sum(q * q) + NORM_EPSILON) / tl.sqrt(DK * 1.0)
        k = k / tl.sqrt(tl.sum(k * k) + NORM_EPSILON)
        v = tl.load(value + token * v_token + head * DV + j, mask=is_value, other=0.0).to(tl.float32)
        if PER_CHANNEL:
            raw = tl.load(decays + token * decay_token + head * DK + i, mask=is_key, other=0.0).to(tl.float32)
            state = state * tl.exp(-rate * softplus(raw + bias))[:, None]
        else:
            raw = tl.load(decays + token * decay_token + head).to(tl.float32)
            state = state * tl.exp(-rate * softplus(raw + bias))
        update = update_scale / (1.0 + tl.exp(-tl.load(updates + token * update_token + head).to(tl.float32)))
        change = (v - tl.sum(state * k[:, None], 0)) * update
        state = state + k[:, None] * change[None, :]
        result = tl.sum(state * q[:, None], 0)
        tl.store(out + (token * NUM_HEADS + head) * DV + j, result.to(out.dtype.element_ty), mask=is_value)
    tl.store(states + target * size + place, state, mask=inside)


@dataclass(frozen=True)
class Decay:
    """How the states of a layer are forgotten: by exp(-exp(rate) * softplus(input + bias))."""

    rates: torch.Tensor
    """H numbers, the logarithms of what the softplus is multiplied by."""
    biases: torch.Tensor
    """`[H]`, or `[H * DK]`: each channel of a head's keys has a decay of its own."""


def apply_delta_rule(
    mixed: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    decays: torch.Tensor,
    updates: torch.Tensor,
    decay: Decay,
    states: torch.Tensor,
    runs: list[StateColumns],
    *,
    update_scale: float = 1.0,
) -> torch.Tensor:
    """`[T, H, DV]` for queries and keys `[T, Hk * DK]` and values `[T, H * DV]`, of which the last dimension is
    contiguous; queries and keys are normalized here.

    `decays` `[T, H]` or `[T, H * DK]` and `updates` `[T, H]` are as the layer's products give them; these become
    `update_scale` times their sigmoid. `states` `[rows, H, DK, DV]` float32 of the store are read and written as `runs`
    say, one run after the other.
    """
    query, key, value = mixed
    heads, dk, dv = states.shape[1:]
    assert query.stride() == key.stride() and {part.stride(1) for part in (*mixed, decays, updates)} == {1}
    out = value.new_empty((len(value), heads, dv))
    block = min(VALUES, round_up(dv))
    for run in runs:
        delta_kernel[(len(run.sources), heads, triton.cdiv(dv, block))](
            out, query, key, value, decays, updates, decay.rates, decay.biases, states, run.query_starts, run.sources,
            run.targets, query.stride(0), value.stride(0), decays.stride(0), updates.stride(0), update_scale,
            NUM_HEADS=heads, GROUP=heads * dk // query.shape[1], DK=dk, DV=dv, PAD_DK=round_up(dk), BLOCK_DV=block,
            PER_CHANNEL=decay.biases.numel() > heads, num_warps=4,
        )
    return out
