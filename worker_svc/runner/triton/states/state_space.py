"""The Triton kernels of state spaces: Mamba 2, a decay for each head (Dao and Gu, 2024), and Mamba 1, one for each
number of a state (Gu and Dao, 2023)."""

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

ELEMENTS = 32
"""Elements of a head, or channels, that a program takes: as many rows of states, which stay in registers."""


@triton.jit  # type: ignore[untyped-decorator]
def space_kernel(  # type: ignore[no-untyped-def]
    out, x, inward, outward, steps, rates, biases, skips, states, query_starts, sources, targets, x_token, b_token,
    c_token, step_token, least_step, most_step, NUM_HEADS: tl.constexpr, GROUP: tl.constexpr, P: tl.constexpr,
    N: tl.constexpr, BLOCK_P: tl.constexpr, PAD_N: tl.constexpr,
):
    """Grid: (rows, heads, parts of a head). GROUP heads share what leads into and out of their states."""
    row, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    i, j = part * BLOCK_P + tl.arange(0, BLOCK_P), tl.arange(0, PAD_N)
    is_element, is_state = i < P, j < N
    inside = is_element[:, None] & is_state[None, :]
    start, end = tl.load(query_starts + row).to(tl.int64), tl.load(query_starts + row + 1).to(tl.int64)
    source, target = tl.load(sources + row).to(tl.int64), tl.load(targets + row).to(tl.int64)
    place = head * P * N + i[:, None] * N + j[None, :]
    size = NUM_HEADS * P * N
    state = tl.load(states + source * size + place, mask=inside & (source >= 0), other=0.0)
    rate = tl.exp(tl.load(rates + head).to(tl.float32))
    bias, skip = tl.load(biases + head).to(tl.float32), tl.load(skips + head).to(tl.float32)
    for token in range(start, end):
        u = tl.load(x + token * x_token + head * P + i, mask=is_element, other=0.0).to(tl.float32)
        b = tl.load(inward + token * b_token + head // GROUP * N + j, mask=is_state, other=0.0).to(tl.float32)
        c = tl.load(outward + token * c_token + head // GROUP * N + j, mask=is_state, other=0.0).to(tl.float32)
        step = softplus(tl.load(steps + token * step_token + head).to(tl.float32) + bias)
        step = tl.minimum(tl.maximum(step, least_step), most_step)
        state = state * tl.exp(-rate * step) + (u * step)[:, None] * b[None, :]
        result = tl.sum(state * c[None, :], 1) + u * skip
        tl.store(out + (token * NUM_HEADS + head) * P + i, result.to(out.dtype.element_ty), mask=is_element)
    tl.store(states + target * size + place, state, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def scan_kernel(  # type: ignore[no-untyped-def]
    out, x, inward, outward, steps, rates, biases, skips, states, query_starts, sources, targets, x_token, b_token,
    c_token, step_token, NUM_CHANNELS: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr, PAD_N: tl.constexpr,
):
    """Grid: (rows, parts of the channels)."""
    row, i, j = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, PAD_N)
    is_channel, is_state = i < NUM_CHANNELS, j < N
    inside = is_channel[:, None] & is_state[None, :]
    start, end = tl.load(query_starts + row).to(tl.int64), tl.load(query_starts + row + 1).to(tl.int64)
    source, target = tl.load(sources + row).to(tl.int64), tl.load(targets + row).to(tl.int64)
    place = i[:, None] * N + j[None, :]
    size = NUM_CHANNELS * N
    state = tl.load(states + source * size + place, mask=inside & (source >= 0), other=0.0)
    rate = tl.exp(tl.load(rates + place, mask=inside, other=0.0).to(tl.float32))
    bias = tl.load(biases + i, mask=is_channel, other=0.0).to(tl.float32)
    skip = tl.load(skips + i, mask=is_channel, other=0.0).to(tl.float32)
    for token in range(start, end):
        u = tl.load(x + token * x_token + i, mask=is_channel, other=0.0).to(tl.float32)
        b = tl.load(inward + token * b_token + j, mask=is_state, other=0.0).to(tl.float32)
        c = tl.load(outward + token * c_token + j, mask=is_state, other=0.0).to(tl.float32)
        step = softplus(tl.load(steps + token * step_token + i, mask=is_channel, other=0.0).to(tl.float32) + bias)
        state = state * tl.exp(-rate * step[:, None]) + (u * step)[:, None] * b[None, :]
        result = tl.sum(state * c[None, :], 1) + u * skip
        tl.store(out + token * NUM_CHANNELS + i, result.to(out.dtype.element_ty), mask=is_channel)
    tl.store(states + target * size + place, state, mask=inside)


@dataclass(frozen=True)
class Space:
    """What of a state space its inputs do not change."""

    rates: torch.Tensor
    """`[H]` of Mamba 2, `[C, N]` of Mamba 1: logarithms of how fast states are forgotten."""
    biases: torch.Tensor
    """`[H]` or `[C]`: what is added to steps, ahead of the softplus."""
    skips: torch.Tensor
    """`[H]` or `[C]`: what of an input is added to the output."""
    step_limits: tuple[float, float] = (0.0, float("inf"))
    """The least and the largest step of Mamba 2; Mamba 1 has no such."""


def move_space(
    x: torch.Tensor,
    inward: torch.Tensor,
    outward: torch.Tensor,
    steps: torch.Tensor,
    space: Space,
    states: torch.Tensor,
    runs: list[StateColumns],
) -> torch.Tensor:
    """Mamba 2: `[T, H * P]` for `x` `[T, H * P]`, `inward` and `outward` `[T, G * N]` of G groups of heads and `steps`
    `[T, H]`, of which the last dimension is contiguous. `states` `[rows, H, P, N]` float32 of the store are read and
    written as `runs` say, one run after the other."""
    heads, p, n = states.shape[1:]
    out = x.new_empty(x.shape)
    block = min(ELEMENTS, round_up(p))
    for run in runs:
        space_kernel[(len(run.sources), heads, triton.cdiv(p, block))](
            out, x, inward, outward, steps, space.rates, space.biases, space.skips, states, run.query_starts,
            run.sources, run.targets, x.stride(0), inward.stride(0), outward.stride(0), steps.stride(0),
            *space.step_limits, NUM_HEADS=heads, GROUP=heads * n // inward.shape[1], P=p, N=n, BLOCK_P=block,
            PAD_N=round_up(n), num_warps=4,
        )
    return out


def scan_selectively(
    x: torch.Tensor,
    inward: torch.Tensor,
    outward: torch.Tensor,
    steps: torch.Tensor,
    space: Space,
    states: torch.Tensor,
    runs: list[StateColumns],
) -> torch.Tensor:
    """Mamba 1: `[T, C]` for `x` and `steps` `[T, C]`, `inward` and `outward` `[T, N]`, of which the last dimension is
    contiguous. `states` `[rows, C, N]` float32 of the store are read and written as `runs` say, one run after the
    other."""
    channels, n = states.shape[1:]
    out = x.new_empty(x.shape)
    block = min(ELEMENTS, round_up(channels))
    for run in runs:
        scan_kernel[(len(run.sources), triton.cdiv(channels, block))](
            out, x, inward, outward, steps, space.rates, space.biases, space.skips, states, run.query_starts,
            run.sources, run.targets, x.stride(0), inward.stride(0), outward.stride(0), steps.stride(0),
            NUM_CHANNELS=channels, N=n, BLOCK=block, PAD_N=round_up(n), num_warps=4,
        )
    return out
