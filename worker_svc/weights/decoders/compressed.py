"""compressed-tensors: whole numbers packed or in bytes, 8-bit and 4-bit floating point, each module by its group."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

from worker_svc.runner.errors import ModelLoadError
from worker_svc.weights.decoders.bits import BITS, signed, unpack
from worker_svc.weights.decoders.float4 import float4_weight, mx_weight
from worker_svc.weights.decoders.float8 import (
    FLOAT8_DTYPES,
    float8_weight,
    leave_out_activations,
    read_block,
)
from worker_svc.weights.decoders.ordered import in_order
from worker_svc.weights.decoders.parts import (
    FLOAT_DTYPES,
    WHOLE_DTYPES,
    Tensors,
    check_dtype,
    check_matrix,
    check_shape,
    load_scales,
)
from worker_svc.weights.quantised import QuantisedMatrix
from worker_svc.weights.scheme import Scheme
from worker_svc.weights.tensor_file import StoredTensor
from worker_svc.weights.weight import Weight, made_of

WORDS, BYTES, INT8 = (frozenset({dtype}) for dtype in (torch.int32, torch.uint8, torch.int8))
UNUSED = (".input_global_scale", ".input_zero_point", ".weight_shape")
"""What no weight needs: scales of activations, and shapes once they were read."""


def decode(tensors: Tensors, scheme: Scheme) -> list[Weight]:
    """Every weight with a scale."""
    leave_out_activations(tensors)
    groups = Groups(scheme.settings.get("config_groups") or {})
    made = [_weight(tensors, module, groups) for module in tensors.ending_in(".weight_scale")]
    for suffix in UNUSED:
        for module in tensors.ending_in(suffix):
            tensors.take(module + suffix)
    return made


class Groups:
    """What the checkpoint says of the weights of each group of modules."""

    def __init__(self, groups: Mapping[str, Any]) -> None:
        self._groups: list[tuple[list[str], Mapping[str, Any]]] = [
            (list(map(str, group.get("targets") or ())), group.get("weights") or {})
            for group in groups.values()
        ]

    def of(self, module: str) -> Mapping[str, Any]:
        """The weights' settings of that module: by its name, else by the class of module that a group is for."""
        if len({str(settings) for _, settings in self._groups}) == 1:
            return self._groups[0][1]
        named = [
            settings for targets, settings in self._groups if any(_names(each, module) for each in targets)
        ]
        by_class = [settings for targets, settings in self._groups if "Linear" in targets]
        if not (named or by_class):
            raise ModelLoadError(f"{module} is quantised, but no group of the quantization_config is for it.")
        return (named or by_class)[0]


def _names(target: str, module: str) -> bool:
    if target.startswith("re:"):
        return re.match(target.removeprefix("re:"), module) is not None
    return target == module


def _weight(tensors: Tensors, module: str, groups: Groups) -> Weight:
    scales, settings = tensors.take(f"{module}.weight_scale"), groups.of(module)
    packed = tensors.take_if_there(f"{module}.weight_packed")
    if packed is None:
        stored = tensors.take(f"{module}.weight")
        if stored.dtype in FLOAT8_DTYPES:
            return float8_weight(stored, scales, read_block(settings.get("block_structure")))
        return _bytes(tensors, module, stored, scales, settings)
    if packed.dtype == torch.int32:
        return _packed(tensors, module, packed, scales, settings)
    check_dtype(packed, BYTES)
    _check_bits(module, settings, 4)
    common = tensors.take_if_there(f"{module}.weight_global_scale")
    if common is None:
        return mx_weight(packed, scales, f"{module}.weight")
    return float4_weight(packed, scales, common, f"{module}.weight", lambda scale: 1 / scale)


def _check_bits(module: str, settings: Mapping[str, Any], bits: int) -> None:
    said = settings.get("num_bits", 8)
    if said != bits:
        raise ModelLoadError(f"{module} is said to have {said} bits, but is stored as if it had {bits}.")


def _bytes(
    tensors: Tensors, module: str, stored: StoredTensor, scales: StoredTensor, settings: Mapping[str, Any]
) -> Weight:
    """Whole numbers of up to eight bits, each in a byte."""
    outputs, inputs = check_matrix(stored, INT8)
    zeros = tensors.take_if_there(f"{module}.weight_zero_point")
    num_groups = _num_groups(scales, outputs, inputs, settings)
    if zeros is not None:
        check_dtype(zeros, INT8)
        check_shape(zeros, scales.shape)
    kept_bits = 8 if int(settings.get("num_bits", 8)) > 4 else 4

    def read(_dtype: torch.dtype) -> QuantisedMatrix:
        spread = _spread(load_scales(scales), outputs, num_groups)
        return QuantisedMatrix(
            codes=stored.load().clone(),
            scales=spread,
            offsets=None if zeros is None else -_spread(zeros.load().float(), outputs, num_groups) * spread,
            bits=kept_bits,
            group_size=inputs // num_groups,
        )

    parts = [part for part in (stored, scales, zeros) if part is not None]
    return made_of(parts, (outputs, inputs), stored.name, read, kept_bits)


def _packed(
    tensors: Tensors, module: str, packed: StoredTensor, scales: StoredTensor, settings: Mapping[str, Any]
) -> Weight:
    """Whole numbers packed along the inputs, zero points along the outputs."""
    bits = int(settings.get("num_bits", 4))
    if bits not in BITS:
        raise ModelLoadError(f"{module}: numbers of {bits} bits are not served, only of {BITS}.")
    outputs, words = check_matrix(packed, WORDS)
    shape = tensors.take(f"{module}.weight_shape")
    check_dtype(shape, WHOLE_DTYPES)
    check_shape(shape, (2,))
    said, inputs = map(int, shape.load().tolist())
    if said != outputs or words != -(-inputs * bits // 32):
        raise ModelLoadError(f"{packed.name} is {list(packed.shape)}, not {[said, inputs]} of {bits} bits.")
    num_groups = _num_groups(scales, outputs, inputs, settings)
    zeros, order = (tensors.take_if_there(f"{module}.weight_{part}") for part in ("zero_point", "g_idx"))
    if zeros is not None:
        check_dtype(zeros, WORDS)
        check_shape(zeros, (-(-outputs * bits // 32), num_groups))
    if order is not None:
        check_dtype(order, WHOLE_DTYPES)
        check_shape(order, (inputs,))

    def read(dtype: torch.dtype) -> torch.Tensor | QuantisedMatrix:
        spread = _spread(load_scales(scales), outputs, num_groups)
        offsets = None
        if zeros is not None:
            offsets = -signed(unpack(zeros.load().T, bits)[:, :outputs], bits).T.float() * spread
        matrix = QuantisedMatrix(
            codes=signed(unpack(packed.load(), bits)[:, :inputs].contiguous(), bits),
            scales=spread,
            offsets=offsets,
            bits=8 if bits == 8 else 4,
            group_size=inputs // num_groups,
        )
        return matrix if order is None else in_order(matrix, order, dtype)

    parts = [part for part in (packed, scales, zeros, order) if part is not None]
    kept_bits = None if order is not None else 8 if bits == 8 else 4
    return made_of(parts, (outputs, inputs), f"{module}.weight", read, kept_bits)


def _num_groups(scales: StoredTensor, outputs: int, inputs: int, settings: Mapping[str, Any]) -> int:
    """Groups of a row. ModelLoadError for scales that do not fit, or are not as the checkpoint says."""
    check_dtype(scales, FLOAT_DTYPES)
    if scales.shape in ((), (1,), (outputs,)):
        return 1
    size = settings.get("group_size")
    num_groups = scales.shape[-1]
    is_filled = scales.shape == (outputs, num_groups) and num_groups > 0 and inputs % num_groups == 0
    is_as_said = num_groups == 1 or not isinstance(size, int) or size < 1 or size * num_groups == inputs
    if not (is_filled and is_as_said):
        raise ModelLoadError(
            f"{scales.name} is {list(scales.shape)}, which does not fit a weight of {[outputs, inputs]}"
            f" with groups of {size or 'any size'}."
        )
    return num_groups


def _spread(values: torch.Tensor, outputs: int, num_groups: int) -> torch.Tensor:
    """[outputs, groups] of one value, one for an output, or one for a group."""
    return values.reshape(-1, num_groups).expand(outputs, num_groups).contiguous()
