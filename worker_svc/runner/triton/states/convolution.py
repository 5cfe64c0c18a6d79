"""The Triton kernel of short causal convolutions, whose last inputs are a part of the state."""

# ruff: noqa: N803
# fmt: off

from __future__ import annotations

import torch
import triton
import triton.language as tl

from worker_svc.runner.recurrent.columns import StateColumns
from worker_svc.runner.triton.attention import round_up

CHANNELS = 256
"""Channels of a program, at most."""


@triton.jit  # type: ignore[untyped-decorator]
def _input_at(  # type: ignore[no-untyped-def]
    inputs, stored, at, start, source, c, is_channel, in_token, NUM_CHANNELS: tl.constexpr, KEPT: tl.constexpr,
):
    """The inputs of query token `at`, or, ahead of the row's `start`, those that the state has; 0: there are none."""
    new = tl.load(inputs + at * in_token + c, mask=is_channel & (at >= start), other=0.0).to(tl.float32)
    place = (source * NUM_CHANNELS + c) * KEPT + KEPT + at - start
    kept = tl.load(stored + place, mask=is_channel & (at < start) & (source >= 0), other=0.0)
    return new + kept.to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def convolve_kernel(  # type: ignore[no-untyped-def]
    out, inputs, weight, bias, stored, query_starts, sources, targets, token_rows, in_token,
    NUM_CHANNELS: tl.constexpr, KERNEL: tl.constexpr, KEPT: tl.constexpr, BLOCK: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_SILU: tl.constexpr,
):
    """Grid: (tokens, parts of the channels). The program of a row's last token writes the row's state."""
    row = tl.load(token_rows + tl.program_id(0))
    token = tl.load(query_starts).to(tl.int64) + tl.program_id(0)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_channel = c < NUM_CHANNELS
    start, end = tl.load(query_starts + row).to(tl.int64), tl.load(query_starts + row + 1).to(tl.int64)
    source, target = tl.load(sources + row).to(tl.int64), tl.load(targets + row).to(tl.int64)
    total = tl.zeros([BLOCK], tl.float32)
    for j in tl.static_range(KERNEL):
        x = _input_at(
            inputs, stored, token - (KERNEL - 1) + j, start, source, c, is_channel, in_token, NUM_CHANNELS, KEPT
        )
        total += x * tl.load(weight + c * KERNEL + j, mask=is_channel, other=0.0).to(tl.float32)
    if HAS_BIAS:
        total += tl.load(bias + c, mask=is_channel, other=0.0).to(tl.float32)
    if HAS_SILU:  # of what a convolution in the model's dtype gives
        total = total.to(out.dtype.element_ty).to(tl.float32)
        total = total / (1.0 + tl.exp(-total))
    tl.store(out + token * NUM_CHANNELS + c, total.to(out.dtype.element_ty), mask=is_channel)
    if token == end - 1:
        for j in tl.static_range(KEPT):
            x = _input_at(
                inputs, stored, end - KEPT + j, start, source, c, is_channel, in_token, NUM_CHANNELS, KEPT
            )
            place = (target * NUM_CHANNELS + c) * KEPT + j
            tl.store(stored + place, x.to(stored.dtype.element_ty), mask=is_channel)


def convolve(
    inputs: torch.Tensor,
    conv: torch.nn.Conv1d,
    states: torch.Tensor,
    runs: list[StateColumns],
    *,
    has_silu: bool = True,
) -> torch.Tensor:
    """`[T, C]` what a depthwise convolution gives for the inputs `[T, C]` of all rows, silu behind it.

    `states` `[rows, C, K]` of the store are read and written as `runs` say, one run after the other.
    """
    inputs = inputs if inputs.stride(1) == 1 else inputs.contiguous()
    out = inputs.new_empty(inputs.shape)
    channels, kept, weight = inputs.shape[1], states.shape[2], conv.weight
    assert kept >= weight.shape[2] - 1
    block = min(CHANNELS, round_up(channels))
    for run in runs:
        convolve_kernel[(len(run.token_rows), triton.cdiv(channels, block))](
            out, inputs, weight, weight if conv.bias is None else conv.bias, states, run.query_starts, run.sources,
            run.targets, run.token_rows, inputs.stride(0), NUM_CHANNELS=channels, KERNEL=weight.shape[2],
            KEPT=kept, BLOCK=block, HAS_BIAS=conv.bias is not None, HAS_SILU=has_silu, num_warps=4,
        )
    return out
