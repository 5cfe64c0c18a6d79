"""GPTQ: numbers of 2, 3, 4 or 8 bits packed along the inputs; with act-order, the inputs of a group lie anywhere."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from worker_svc.runner.errors import ModelLoadError
from worker_svc.weights.decoders.bits import signed, unpack
from worker_svc.weights.decoders.ordered import in_order
from worker_svc.weights.decoders.parts import (
    FLOAT_DTYPES,
    WHOLE_DTYPES,
    Tensors,
    check_dtype,
    check_matrix,
    check_shape,
    group_length,
    load_scales,
)
from worker_svc.weights.quantised import QuantisedMatrix
from worker_svc.weights.scheme import Scheme
from worker_svc.weights.tensor_file import StoredTensor
from worker_svc.weights.weight import Weight, made_of

WORDS = frozenset({torch.int32})
ONES = {2: 0x55555555, 4: 0x11111111, 8: 0x01010101}
"""A word whose numbers are all 1, by their bits."""


@dataclass(frozen=True)
class Layout:
    """What holds for all matrices of a checkpoint."""

    bits: int
    group_size: int
    """-1: a scale for a whole output."""
    are_zeros_less_one: bool
    """The first version of the format stores zero points less one."""


def decode(tensors: Tensors, scheme: Scheme) -> list[Weight]:
    """Every weight with a `qweight`."""
    settings = scheme.settings
    version = str(settings.get("checkpoint_format", settings.get("format", "gptq"))).lower()
    layout = Layout(int(settings["bits"]), int(settings.get("group_size", 128)), version != "gptq_v2")
    return [_weight(tensors, module, layout) for module in tensors.ending_in(".qweight")]


def _weight(tensors: Tensors, module: str, layout: Layout) -> Weight:
    words, zeros = tensors.take(f"{module}.qweight"), tensors.take(f"{module}.qzeros")
    scales, order = tensors.take(f"{module}.scales"), tensors.take_if_there(f"{module}.g_idx")
    rows, outputs = check_matrix(words, WORDS)
    inputs, zero_bits = rows * 32 // layout.bits, outputs * layout.bits
    if rows * 32 % layout.bits or zero_bits % 32:
        raise ModelLoadError(
            f"{words.name} is {list(words.shape)}, which numbers of {layout.bits} bits do not fill."
        )
    length = group_length(words.name, inputs, layout.group_size)
    check_matrix(scales, FLOAT_DTYPES)
    check_shape(scales, (inputs // length, outputs))
    check_matrix(zeros, WORDS)
    check_shape(zeros, (inputs // length, zero_bits // 32))
    parts = [words, zeros, scales]
    if order is not None:
        check_dtype(order, WHOLE_DTYPES)
        check_shape(order, (inputs,))
        parts.append(order)

    def read(dtype: torch.dtype) -> torch.Tensor | QuantisedMatrix:
        matrix = _matrix(words, zeros, scales, layout, length)
        return matrix if order is None else in_order(matrix, order, dtype)

    bits = None if order is not None else 8 if layout.bits == 8 else 4
    return made_of(parts, (outputs, inputs), f"{module}.weight", read, bits)


def _matrix(
    words: StoredTensor, zeros: StoredTensor, scales: StoredTensor, layout: Layout, group_size: int
) -> QuantisedMatrix:
    """The groups taken as if they lay one behind another."""
    by_output = load_scales(scales).T.contiguous()
    half = 1 << layout.bits - 1
    return QuantisedMatrix(
        codes=signed(unpack(words.load().T, layout.bits), layout.bits),
        scales=by_output,
        offsets=(half - _zeros(zeros.load(), layout).T.float()) * by_output,
        bits=8 if layout.bits == 8 else 4,
        group_size=group_size,
    )


def _zeros(words: torch.Tensor, layout: Layout) -> torch.Tensor:
    """uint8 `[groups, outputs]`."""
    if not layout.are_zeros_less_one:
        return unpack(words, layout.bits)
    if layout.bits in ONES:
        # One is added to whole words, as it was taken from whole words: a zero point of 0 borrows from its neighbour.
        return unpack(words + ONES[layout.bits], layout.bits)
    return unpack(words, layout.bits) + 1
