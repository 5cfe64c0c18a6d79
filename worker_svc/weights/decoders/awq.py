"""AWQ in its gemm layout: four bits in int32, the eight numbers of a word out of order, groups along the inputs."""

from __future__ import annotations

import torch

from worker_svc.runner.errors import ModelLoadError
from worker_svc.weights.decoders.parts import (
    FLOAT_DTYPES,
    Tensors,
    check_matrix,
    check_shape,
    group_length,
    load_scales,
)
from worker_svc.weights.quantised import QuantisedMatrix
from worker_svc.weights.scheme import Scheme
from worker_svc.weights.tensor_file import StoredTensor
from worker_svc.weights.weight import Weight, made_of

BITS, PER_WORD = 4, 8
PLACES = [0, 4, 1, 5, 2, 6, 3, 7]
"""Where in a word, counted from its lowest bits, its first, second, ... number is."""
WORDS = frozenset({torch.int32})


def decode(tensors: Tensors, scheme: Scheme) -> list[Weight]:
    """Every weight with a `qweight`."""
    group_size = int(scheme.settings.get("group_size", 128))
    return [_weight(tensors, module, group_size) for module in tensors.ending_in(".qweight")]


def _weight(tensors: Tensors, module: str, group_size: int) -> Weight:
    words, zeros = tensors.take(f"{module}.qweight"), tensors.take(f"{module}.qzeros")
    scales = tensors.take(f"{module}.scales")
    inputs, columns = check_matrix(words, WORDS)
    length = group_length(words.name, inputs, group_size)
    num_groups, outputs = check_matrix(scales, FLOAT_DTYPES)
    check_matrix(zeros, WORDS)
    if outputs != columns * PER_WORD:
        raise ModelLoadError(f"{scales.name} has {outputs} outputs, but {words.name} {columns * PER_WORD}.")
    check_shape(scales, (inputs // length, outputs))
    check_shape(zeros, (num_groups, columns))

    def read(_dtype: torch.dtype) -> QuantisedMatrix:
        return _matrix(words, zeros, scales, length)

    return made_of([words, zeros, scales], (outputs, inputs), f"{module}.weight", read, BITS)


def _matrix(
    words: StoredTensor, zeros: StoredTensor, scales: StoredTensor, group_size: int
) -> QuantisedMatrix:
    by_output = load_scales(scales).T.contiguous()
    half = 1 << BITS - 1
    offsets = (half - _by_output(zeros.load()).float()) * by_output
    return QuantisedMatrix(
        codes=_by_output(words.load()).sub_(half).view(torch.int8),  # in place: a matrix less in memory
        scales=by_output,
        offsets=offsets,
        bits=BITS,
        group_size=group_size,
    )


def _by_output(words: torch.Tensor) -> torch.Tensor:
    """uint8 `[8 * columns, rows]` of the numbers in words `[rows, columns]`."""
    turned = words.T.contiguous()
    made = torch.empty(turned.shape[0], PER_WORD, turned.shape[1], dtype=torch.uint8)
    for number, place in enumerate(PLACES):
        part = turned >> BITS * place
        part &= 15
        made[:, number] = part
    return made.flatten(0, 1)
