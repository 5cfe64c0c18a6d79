"""Weights in 4-bit floating point (E2M1): gpt-oss' MXFP4, ModelOpt's NVFP4, and both as compressed-tensors has them."""

from __future__ import annotations

from collections.abc import Callable

import torch

from worker_svc.runner.errors import ModelLoadError
from worker_svc.weights.decoders.float8 import leave_out_activations
from worker_svc.weights.decoders.grid import powers_of_two
from worker_svc.weights.decoders.parts import (
    FLOAT_DTYPES,
    Tensors,
    check_dtype,
    check_matrix,
    check_shape,
    load_scales,
)
from worker_svc.weights.scheme import Scheme
from worker_svc.weights.served import in_chunks
from worker_svc.weights.tensor_file import StoredTensor
from worker_svc.weights.weight import Weight, made_of

BYTES = frozenset({torch.uint8})
FLOAT8 = frozenset({torch.float8_e4m3fn})
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
NUMBERS = torch.tensor([*MAGNITUDES, *(-magnitude for magnitude in MAGNITUDES)])
PAIRS = torch.stack((NUMBERS.repeat(16), NUMBERS.repeat_interleave(16)), dim=-1)
"""[256, 2]: the two numbers of a byte, the one in its lower half first."""
MX_GROUP, NV_GROUP = 32, 16
"""Numbers that share a scale."""
MXFP4_PARTS = ("_blocks", "_scales")


def decode_mxfp4(tensors: Tensors, _scheme: Scheme) -> list[Weight]:
    """The experts of gpt-oss: every tensor with `_blocks`."""
    return [_experts(tensors, name) for name in tensors.ending_in(MXFP4_PARTS[0])]


def decode_modelopt(tensors: Tensors, _scheme: Scheme) -> list[Weight]:
    """Every weight with a second scale, which multiplies the first ones."""
    leave_out_activations(tensors)
    return [
        float4_weight(
            tensors.take(f"{module}.weight"),
            tensors.take(f"{module}.weight_scale"),
            tensors.take(f"{module}.weight_scale_2"),
            f"{module}.weight",
            lambda scale: scale,
        )
        for module in tensors.ending_in(".weight_scale_2")
    ]


def float4_weight(
    stored: StoredTensor,
    scales: StoredTensor,
    common: StoredTensor,
    name: str,
    factor: Callable[[torch.Tensor], torch.Tensor],
) -> Weight:
    """NVFP4: bytes `[outputs, inputs / 2]`, 8-bit scales `[outputs, inputs / 16]`, and what `factor` makes of the one
    that all have in common."""
    outputs, inputs = _lengths(stored, NV_GROUP)
    check_dtype(scales, FLOAT8)
    check_shape(scales, (outputs, inputs // NV_GROUP))
    check_dtype(common, FLOAT_DTYPES)
    if common.shape not in ((), (1,)):
        raise ModelLoadError(f"{common.name} is {list(common.shape)}, where one number is needed.")

    def read(dtype: torch.dtype) -> torch.Tensor:
        whole = factor(load_scales(common).reshape(()))
        if not bool(whole.isfinite()):
            raise ModelLoadError(f"{common.name} has a scale that is not finite.")
        return _numbers(stored.load(), load_scales(scales) * whole, dtype)

    return made_of([stored, scales, common], (outputs, inputs), name, read)


def mx_weight(stored: StoredTensor, scales: StoredTensor, name: str) -> Weight:
    """MXFP4: bytes `[outputs, inputs / 2]`, and exponents of two `[outputs, inputs / 32]`."""
    outputs, inputs = _lengths(stored, MX_GROUP)
    check_dtype(scales, BYTES)
    check_shape(scales, (outputs, inputs // MX_GROUP))

    def read(dtype: torch.dtype) -> torch.Tensor:
        return _numbers(stored.load(), powers_of_two(scales), dtype)

    return made_of([stored, scales], (outputs, inputs), name, read)


def _lengths(stored: StoredTensor, group: int) -> tuple[int, int]:
    outputs, num_bytes = check_matrix(stored, BYTES)
    if num_bytes * 2 % group:
        raise ModelLoadError(f"{stored.name}: groups of {group} do not divide {num_bytes * 2} inputs.")
    return outputs, num_bytes * 2


def _experts(tensors: Tensors, name: str) -> Weight:
    """`[experts, inputs, outputs]`, as the model has its parameter; gate and up stay interleaved."""
    blocks, scales = (tensors.take(name + part) for part in MXFP4_PARTS)
    check_dtype(blocks, BYTES)
    check_dtype(scales, BYTES)
    if len(blocks.shape) != 4 or blocks.shape[-1] != MX_GROUP // 2 or min(blocks.shape) < 1:
        raise ModelLoadError(f"{blocks.name} is {list(blocks.shape)}, where [.., .., .., 16] is needed.")
    check_shape(scales, blocks.shape[:-1])
    num_experts, outputs, num_groups, _ = blocks.shape
    shape = num_experts, num_groups * MX_GROUP, outputs

    def read(dtype: torch.dtype) -> torch.Tensor:
        made = torch.empty(shape, dtype=dtype)
        stored, factors = blocks.load().flatten(-2), powers_of_two(scales)
        for expert in range(num_experts):
            made[expert] = _numbers(stored[expert], factors[expert], dtype).T
        return made

    return made_of([blocks, scales], shape, name, read)


def _numbers(stored: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`[outputs, inputs]` of bytes `[outputs, inputs / 2]` and scales `[outputs, groups]`."""
    outputs, num_bytes = stored.shape

    def rows(chunk: slice) -> torch.Tensor:
        numbers = PAIRS[stored[chunk].int()].view(len(scales[chunk]), scales.shape[1], -1)
        return numbers.mul_(scales[chunk][..., None]).flatten(-2)

    return in_chunks((outputs, num_bytes * 2), dtype, rows)
