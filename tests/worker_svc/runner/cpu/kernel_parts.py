"""What is compared of kernels that were built in several ways: results of all of them but the decoder's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from tests.worker_svc.runner.cpu.state_layers import Shape, make_layer, make_native, make_rows
from tests.worker_svc.runner.cpu.test_kept_linear import INPUTS, make_matrix, random_rows
from tests.worker_svc.runner.cpu.test_native_choice import LIMITS, choices_of, rows_of
from tests.worker_svc.runner.test_paged_attention import DECODE_ROWS, PREFILL_ROWS, Case
from worker_svc.core.requests.state_versions import NOTHING
from worker_svc.runner.attention import attention
from worker_svc.runner.attention.kv_cache import LayerCache
from worker_svc.runner.attention.torch_attention import Scores
from worker_svc.runner.cpu.experts.packed_stack import PackedStack
from worker_svc.runner.cpu.native.kernels import TILE, Activation, Kernels
from worker_svc.runner.cpu.native.structs import ExpertsCall, PackedCall
from worker_svc.runner.cpu.native_linear import PackedWeight
from worker_svc.runner.cpu.packed_codes import PackedCodes

DTYPES = (torch.float32, torch.bfloat16)
Part = Callable[[Kernels], Iterator[torch.Tensor]]
"""Calls some kernels and gives what they give."""


def small_kernels(kernels: Kernels) -> Iterator[torch.Tensor]:
    for dtype in DTYPES:
        x, weight = random_rows(7, dtype, 1030), random_rows(1, dtype, 1030)[0]
        yield kernels.rms_norm(x, weight, 1e-5, 1.0, True)
        gate_up = 3 * random_rows(5, dtype, 2 * 96)  # no result is subnormal, which AVX512_BF16 rounds to 0
        for activation in Activation:
            yield kernels.gate(gate_up, activation)
        yield torch.from_numpy(kernels.argmax(x))


def products(kernels: Kernels) -> Iterator[torch.Tensor]:
    for bits, group, has_offsets, is_half, is_e2m1 in (
        (4, 32, False, True, False),
        (4, 128, True, False, False),
        (4, 16, False, False, True),
        (4, 32, False, True, True),
        (8, 16, True, True, False),
        (8, 32, False, True, False),
        (8, INPUTS, False, False, False),
    ):
        packed = PackedCodes(make_matrix(96, bits, group, has_offsets, is_half, is_e2m1=is_e2m1))
        for dtype in DTYPES:
            for rows in (1, 3, 8, 41):
                yield kernels.linear_quantised(random_rows(rows, dtype), packed.call)
    if kernels.has_dot:
        weight = PackedWeight(random_rows(100, torch.bfloat16))
        for rows in (1, 5, 40):
            yield kernels.linear(random_rows(rows, torch.bfloat16), weight.call)


def products_in_floats(kernels: Kernels) -> Iterator[torch.Tensor]:
    for dtype in DTYPES:
        stack = _stack(1, (100, 66), dtype)
        for rows in (1, 2, 9):
            for of_rows in DTYPES:
                yield kernels.linear_plain(random_rows(rows, of_rows, 66), stack.calls[0])


def experts(kernels: Kernels) -> Iterator[torch.Tensor]:
    count, hidden, width = 5, 96, 64
    shapes = (2 * width, hidden), (hidden, width)
    for dtype in DTYPES if kernels.has_dot else DTYPES[:1]:
        up, down = (_stack(count, shape, dtype) for shape in shapes)
        yield from _mixed(kernels, dtype, up.calls, down.calls)
    for bits in (8, 4):
        matrices = [
            [PackedCodes(make_matrix(outputs + expert, bits, 32, inputs=inputs)) for expert in range(count)]
            for outputs, inputs in shapes
        ]
        calls = [(PackedCall * count)(*(each.call for each in of)) for of in matrices]
        for dtype in DTYPES:
            yield from _mixed(kernels, dtype, *calls)


def _stack(count: int, shape: tuple[int, int], dtype: torch.dtype) -> PackedStack:
    outputs, inputs = shape
    biases = random_rows(count, torch.float32, outputs)
    return PackedStack(
        count, lambda expert: random_rows(outputs + expert, dtype, inputs)[expert:] / 8, biases
    )


def _mixed(kernels: Kernels, dtype: torch.dtype, *calls: ctypes.Array[PackedCall]) -> Iterator[torch.Tensor]:
    rows = random_rows(11, dtype, calls[0][0].inputs)
    chosen = torch.arange(3 * len(rows)).view(-1, 3) * 7 % len(calls[0])
    shares = torch.linspace(0.1, 0.9, chosen.numel()).view(-1, 3)
    for activation in Activation:
        out = torch.empty_like(rows)
        call = ExpertsCall(
            *map(ctypes.addressof, calls),
            *(each.data_ptr() for each in (rows, chosen, shares, out)),
            *chosen.shape,
            len(calls[0]),
            alpha=1.7,
            limit=7.0,
            activation=activation,
            is_bf16=dtype == torch.bfloat16,
        )
        kernels.mix_experts(call)
        yield out


def rotations(kernels: Kernels) -> Iterator[torch.Tensor]:
    tokens, heads, kv_heads, block_size = 19, 6, 2, 4
    for dtype in DTYPES:
        for dim, rotary_dim in ((16, 16), (80, 32), (128, 128)):
            layer = LayerCache(
                *(torch.zeros(9, kv_heads, block_size, dim, dtype=dtype) for _ in range(2)),
            )
            qkv = random_rows(tokens, dtype, (heads + 2 * kv_heads) * dim)
            angles = random_rows(tokens, torch.float32, rotary_dim // 2).repeat(1, 2)
            places = torch.arange(tokens) * 5 % (9 * block_size)
            norms = random_rows(2, dtype, dim)
            kernels.rope_and_write(
                qkv,
                layer,
                cosines=angles.cos().to(dtype),
                sines=angles.sin().to(dtype),
                block_ids=places // block_size,
                offsets=places % block_size,
                num_heads=heads,
                query_norm=norms[0],
                key_norm=norms[1],
                epsilon=1e-5,
            )
            yield from (qkv, layer.keys, layer.values)


def loading(kernels: Kernels) -> Iterator[torch.Tensor]:
    for dtype in DTYPES:
        numbers = random_rows(70, dtype)
        yield from kernels.round_groups(numbers)
        yield from kernels.round_to_bytes(numbers)
    rows = random_rows(2 * TILE, torch.float32, 6 * 22)
    starts = rows.data_ptr() + np.arange(len(rows)) * rows.stride(0) * rows.itemsize
    for group_words in (6 * 22, 22):
        packed = torch.zeros(2, 6 * 22 // group_words, 2 * TILE + 4 * TILE * group_words, dtype=torch.uint8)
        kernels.pack_rows(starts, packed, words=6 * 22, group_words=group_words, head_bytes=2 * TILE, flips=3)
        yield packed


def attention_of_rows(kernels: Kernels) -> Iterator[torch.Tensor]:
    for dtype in DTYPES if kernels.has_dot else DTYPES[:1]:
        for seed, shape in enumerate(((4, 4, 16), (8, 1, 64), (6, 2, 128))):
            for window, softcap in ((None, None), (37, 20.0)):
                rows = DECODE_ROWS + PREFILL_ROWS
                case = Case(rows, len(DECODE_ROWS), shape, dtype=dtype, seed=seed)
                scores = Scores(scaling=shape[2] ** -0.5, sliding_window=window, softcap=softcap)
                # Not around a yield: two of these run in turns.
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(attention, "native_kernels", lambda: kernels)
                    attended = attention.attend(case.query, case.layer, case.batch, scores)
                yield attended


@torch.inference_mode()
def recurrent_states(kernels: Kernels) -> Iterator[torch.Tensor]:
    for dtype in DTYPES:
        for family, shape in (
            ("qwen3.5", Shape(2, 4, 24, 80, 4)),
            ("qwen3.5", Shape(1, 2, 128, 128, 3)),
            ("bamba", Shape(1, 4, 128, 64, 4)),
            ("bamba", Shape(2, 8, 64, 24, 3)),
            ("falcon", Shape(2, 8, 64, 24, 3)),
            ("lfm2", Shape(0, 1, 0, 150, 3)),
            ("kimi", Shape(2, 2, 80, 80, 4)),
            ("jamba", Shape(5, 2, 16, 24, 4)),
        ):
            layer = make_layer(family, shape, dtype)
            rows = make_rows(layer, [1, 40, 2], [0, NOTHING, 4], [1, 3, 5])
            native = make_native(layer, kernels)
            yield native.mix(random_rows(43, dtype, native.in_proj.out_features), rows)
            yield from rows.store.layers[0]


def choices(kernels: Kernels) -> Iterator[torch.Tensor]:
    for size in (17, 1000, 40_000):
        for kind in ("normal", "bfloat16", "impossible", "far apart"):
            scores = rows_of(kind, size)
            params = [each for each in LIMITS for _ in scores]
            numbers = np.random.default_rng(size).random(len(params))
            told = choices_of(params, numbers, size)
            yield torch.from_numpy(kernels.choose(scores.repeat(len(LIMITS), 1), told))
    seeds = np.arange(100, dtype=np.uint64) * np.uint64(2**57 + 3)
    yield torch.from_numpy(
        kernels.uniforms(seeds, np.arange(100, dtype=np.uint32), np.arange(100, dtype=np.int32), 1)
    )


PARTS: tuple[Part, ...] = (
    small_kernels,
    products,
    products_in_floats,
    experts,
    rotations,
    loading,
    attention_of_rows,
    recurrent_states,
    choices,
)
