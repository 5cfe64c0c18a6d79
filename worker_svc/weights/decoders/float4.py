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
from worker_svc.weights.quantised import QuantisedMatrix
from worker_svc.weights.scheme import Scheme
from worker_svc.weights.stack import MatrixStack
from worker_svc.weights.tensor_file import StoredTensor
from worker_svc.weights.weight import Weight, made_of

BYTES = frozenset({torch.uint8})
FLOAT8 = frozenset({torch.float8_e4m3fn})
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

    def read(_dtype: torch.dtype) -> QuantisedMatrix:
        whole = factor(load_scales(common).reshape(()))
        if not bool(whole.isfinite()):
            raise ModelLoadError(f"{common.name} has a scale that is not finite.")
        return _matrix(stored.load(), load_scales(scales) * whole)

    return made_of([stored, scales, common], (outputs, inputs), name, read, bits=4)


def mx_weight(stored: StoredTensor, scales: StoredTensor, name: str) -> Weight:
    """MXFP4: bytes `[outputs, inputs / 2]`, and exponents of two `[outputs, inputs / 32]`."""
    outputs, inputs = _lengths(stored, MX_GROUP)
    check_dtype(scales, BYTES)
    check_shape(scales, (outputs, inputs // MX_GROUP))

    def read(_dtype: torch.dtype) -> QuantisedMatrix:
        return _matrix(stored.load(), powers_of_two(scales))

    return made_of([stored, scales], (outputs, inputs), name, read, bits=4)


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

    def read(_dtype: torch.dtype) -> MatrixStack:
        factors = powers_of_two(scales)

        def matrix(expert: int) -> QuantisedMatrix:
            made = _matrix(blocks.load()[expert].flatten(-2), factors[expert])
            num_bytes = blocks.num_bytes // num_experts
            blocks.file.forget(blocks.start + expert * num_bytes, num_bytes)
            return made

        return MatrixStack(num_experts, matrix, is_transposed=True)

    return made_of([blocks, scales], shape, name, read, bits=4)


def _matrix(stored: torch.Tensor, scales: torch.Tensor) -> QuantisedMatrix:
    """The matrix of bytes `[outputs, inputs / 2]`, the first of two numbers in the lower half, and of scales
    `[outputs, groups]`."""
    codes = (torch.stack((stored & 15, stored >> 4), dim=-1) - 8).view(torch.int8).flatten(-2)
    group_size = codes.shape[1] // scales.shape[1]
    return QuantisedMatrix(codes, scales / 2, None, bits=4, group_size=group_size, is_e2m1=True)
