"""Triton kernels around attention: the KV write, alone or with norm and rope, and the norm and gate of a layer.

`TritonKernels` offers what `native.kernels.Kernels` does for the modules of `fused.py`, and rounds at the same places.
"""

# ruff: noqa: N803
# fmt: off

from __future__ import annotations

import torch
import triton
import triton.language as tl

from worker_svc.runner.attention.kv_cache import LayerCache
from worker_svc.runner.cpu.native.kernels import Activation
from worker_svc.runner.triton.attention import round_up


@triton.jit  # type: ignore[untyped-decorator]
def write_kernel(  # type: ignore[no-untyped-def]
    key, value, keys, values, block_ids, offsets, k_token, k_head, v_token, v_head, HEADS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, PAD_D: tl.constexpr, PAD_DV: tl.constexpr,
    LATENT: tl.constexpr,
):
    """Grid: (tokens, KV heads)."""
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d, dv = tl.arange(0, PAD_D), tl.arange(0, PAD_DV)
    at = (tl.load(block_ids + token) * HEADS + head) * BLOCK_SIZE + tl.load(offsets + token)
    k = tl.load(key + token * k_token + head * k_head + d, mask=d < D)
    tl.store(keys + at * D + d, k, mask=d < D)
    if not LATENT:  # else the value is in the key
        v = tl.load(value + token * v_token + head * v_head + dv, mask=dv < DV)
        tl.store(values + at * DV + dv, v, mask=dv < DV)


def write_kv(
    layer: LayerCache, key: torch.Tensor, value: torch.Tensor, block_ids: torch.Tensor, offsets: torch.Tensor
) -> None:
    """Stores `[T, Hkv, D]` keys and values at `offsets` of the blocks `block_ids`, `[T]` int64."""
    heads, block_size, dim = layer.keys.shape[1:]
    value_dim = layer.values.shape[3]
    key, value = (x if x.stride(2) == 1 else x.contiguous() for x in (key, value))
    write_kernel[(len(block_ids), heads)](
        key, value, layer.keys, layer.values, block_ids, offsets, key.stride(0), key.stride(1),
        value.stride(0), value.stride(1), HEADS=heads, BLOCK_SIZE=block_size, D=dim, DV=value_dim,
        PAD_D=round_up(dim), PAD_DV=round_up(value_dim), LATENT=layer.values_in_keys,
        num_warps=1,
    )


@triton.jit  # type: ignore[untyped-decorator]
def rope_kernel(  # type: ignore[no-untyped-def]
    qkv, cosines, sines, query_norm, key_norm, keys, values, block_ids, offsets, epsilon, weight_offset,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, BLOCK_SIZE: tl.constexpr, D: tl.constexpr,
    HALF: tl.constexpr, PAD_HALF: tl.constexpr, REST: tl.constexpr, PAD_REST: tl.constexpr,
    HAS_NORMS: tl.constexpr, ROUNDS: tl.constexpr,
):
    """Grid: (tokens, query and KV heads). A head is taken as two halves that rotate, and a rest."""
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    dtype = qkv.dtype.element_ty
    i, j = tl.arange(0, PAD_HALF), tl.arange(0, PAD_REST)
    within, beyond = i < HALF, j < REST
    at = qkv + (token * (HEADS + 2 * KV_HEADS) + head) * D
    x1 = tl.load(at + i, mask=within, other=0.0).to(tl.float32)
    x2 = tl.load(at + HALF + i, mask=within, other=0.0).to(tl.float32)
    rest = tl.load(at + 2 * HALF + j, mask=beyond, other=0.0).to(tl.float32)
    if HAS_NORMS:
        norm = key_norm
        if head < HEADS:
            norm = query_norm
        square = tl.sum(x1 * x1) + tl.sum(x2 * x2) + tl.sum(rest * rest)
        scale = 1.0 / tl.sqrt(square / D + epsilon)
        x1, x2, rest = x1 * scale, x2 * scale, rest * scale
        if ROUNDS:
            x1, x2, rest = (
                x1.to(dtype).to(tl.float32),
                x2.to(dtype).to(tl.float32),
                rest.to(dtype).to(tl.float32),
            )
        x1 *= tl.load(norm + i, mask=within, other=0.0).to(tl.float32) + weight_offset
        x2 *= tl.load(norm + HALF + i, mask=within, other=0.0).to(tl.float32) + weight_offset
        rest *= tl.load(norm + 2 * HALF + j, mask=beyond, other=0.0).to(tl.float32) + weight_offset
        x1, x2, rest = x1.to(dtype).to(tl.float32), x2.to(dtype).to(tl.float32), rest.to(dtype).to(tl.float32)
    turn = token * 2 * HALF + i
    c1 = tl.load(cosines + turn, mask=within, other=0.0).to(tl.float32)
    c2 = tl.load(cosines + turn + HALF, mask=within, other=0.0).to(tl.float32)
    s1 = tl.load(sines + turn, mask=within, other=0.0).to(tl.float32)
    s2 = tl.load(sines + turn + HALF, mask=within, other=0.0).to(tl.float32)
    y1, y2 = (x1 * c1 - x2 * s1).to(dtype), (x2 * c2 + x1 * s2).to(dtype)
    if head < HEADS:
        tl.store(at + i, y1, mask=within)
        tl.store(at + HALF + i, y2, mask=within)
        if HAS_NORMS:
            tl.store(at + 2 * HALF + j, rest.to(dtype), mask=beyond)
    else:
        place = (tl.load(block_ids + token) * KV_HEADS + head - HEADS) * BLOCK_SIZE + tl.load(offsets + token)
        tl.store(keys + place * D + i, y1, mask=within)
        tl.store(keys + place * D + HALF + i, y2, mask=within)
        tl.store(keys + place * D + 2 * HALF + j, rest.to(dtype), mask=beyond)
        value = at + KV_HEADS * D
        v1, v2 = tl.load(value + i, mask=within), tl.load(value + HALF + i, mask=within)
        v3 = tl.load(value + 2 * HALF + j, mask=beyond)
        tl.store(values + place * D + i, v1, mask=within)
        tl.store(values + place * D + HALF + i, v2, mask=within)
        tl.store(values + place * D + 2 * HALF + j, v3, mask=beyond)


@triton.jit  # type: ignore[untyped-decorator]
def norm_kernel(  # type: ignore[no-untyped-def]
    x, weight, out, epsilon, weight_offset, D: tl.constexpr, PAD_D: tl.constexpr, ROUNDS: tl.constexpr,
):
    """Root mean square norm of rows. Grid: (rows,)."""
    row, d = tl.program_id(0).to(tl.int64), tl.arange(0, PAD_D)
    dtype = out.dtype.element_ty
    values = tl.load(x + row * D + d, mask=d < D, other=0.0).to(tl.float32)
    values *= 1.0 / tl.sqrt(tl.sum(values * values) / D + epsilon)
    if ROUNDS:
        values = values.to(dtype).to(tl.float32)
    values *= tl.load(weight + d, mask=d < D, other=0.0).to(tl.float32) + weight_offset
    tl.store(out + row * D + d, values.to(dtype), mask=d < D)


@triton.jit  # type: ignore[untyped-decorator]
def gate_kernel(gate_up, out, WIDTH: tl.constexpr, IS_GELU: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Grid: (rows, parts of the width)."""
    row, d = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gates = tl.load(gate_up + row * 2 * WIDTH + d, mask=d < WIDTH, other=0.0).to(tl.float32)
    ups = tl.load(gate_up + (row * 2 + 1) * WIDTH + d, mask=d < WIDTH, other=0.0).to(tl.float32)
    y = gates
    if IS_GELU:  # (1 + tanh(y)) / 2 is 1 / (1 + exp(-2y))
        y = 1.5957691216057308 * (gates + 0.044715 * gates * gates * gates)
    result = gates / (1.0 + tl.exp(-y)) * ups
    tl.store(out + row * WIDTH + d, result.to(out.dtype.element_ty), mask=d < WIDTH)


class TritonKernels:
    """The kernels as functions of tensors, which are contiguous and on one device."""

    def rope_and_write(
        self,
        qkv: torch.Tensor,
        layer: LayerCache,
        *,
        cosines: torch.Tensor,
        sines: torch.Tensor,
        block_ids: torch.Tensor,
        offsets: torch.Tensor,
        num_heads: int,
        query_norm: torch.Tensor | None = None,
        key_norm: torch.Tensor | None = None,
        epsilon: float = 0.0,
        weight_offset: float = 0.0,
    ) -> None:
        """Normalizes (if there are weights `[D]`) and rotates Q, in place, and K, and writes K and V to the cache.

        `qkv` is `[T, (Hq + 2 * Hkv) * D]`, `cosines` and `sines` `[T, rotary dim]` for halves that are rotated
        against each other, `block_ids` and `offsets` `[T]` int64. `weight_offset` is added to the norms' weights.
        """
        kv_heads, block_size, dim = layer.keys.shape[1:]
        rotary = cosines.shape[-1]
        rope_kernel[(len(block_ids), num_heads + kv_heads)](
            qkv, cosines, sines, qkv if query_norm is None else query_norm,
            qkv if key_norm is None else key_norm, layer.keys, layer.values, block_ids, offsets, epsilon,
            weight_offset, HEADS=num_heads, KV_HEADS=kv_heads, BLOCK_SIZE=block_size, D=dim,
            HALF=rotary // 2, PAD_HALF=round_up(rotary // 2), REST=dim - rotary,
            PAD_REST=round_up(max(1, dim - rotary)), HAS_NORMS=query_norm is not None,
            ROUNDS=weight_offset == 0, num_warps=1,
        )

    def rms_norm(
        self, x: torch.Tensor, weight: torch.Tensor, epsilon: float, weight_offset: float, rounds: bool
    ) -> torch.Tensor:
        """`x` `[..., D]` over its root mean square, times `weight + weight_offset` `[D]`.

        `rounds`: to the dtype before the multiplication as well as after it, as the model's own code may do.
        """
        out, dim = torch.empty_like(x), x.shape[-1]
        norm_kernel[(x.numel() // dim,)](
            x, weight, out, epsilon, weight_offset, D=dim, PAD_D=round_up(dim), ROUNDS=rounds,
            num_warps=4,
        )
        return out

    def gate(self, gate_up: torch.Tensor, activation: Activation) -> torch.Tensor:
        """`activation(gates) * ups` `[..., I]` for `gate_up` `[..., 2 * I]`, the gates first."""
        width = gate_up.shape[-1] // 2
        out = gate_up.new_empty((*gate_up.shape[:-1], width))
        block = min(1024, round_up(width))
        gate_kernel[(out.numel() // width, triton.cdiv(width, block))](
            gate_up,
            out,
            WIDTH=width,
            IS_GELU=activation == Activation.GELU_TANH,
            BLOCK=block,
            num_warps=4,
        )
        return out
