"""The form in which a quantised matrix is served."""

from __future__ import annotations

from collections.abc import Callable

import torch

from worker_svc.weights.quantised import QuantisedMatrix
from worker_svc.weights.stack import MatrixStack
from worker_svc.weights.weight import Stored

CHUNK_ELEMENTS = 1 << 19
"""Numbers that are float32 at a time: what a thread takes beside the result."""


def served_form(made: Stored, dtype: torch.dtype) -> torch.Tensor:
    """The weight as the model's parameter: whole numbers as what they stand for, in `dtype`; others as they are."""
    if isinstance(made, MatrixStack):
        return _stacked(made, dtype)
    return _numbers(made, dtype) if isinstance(made, QuantisedMatrix) else made


def _stacked(stack: MatrixStack, dtype: torch.dtype) -> torch.Tensor:
    made = torch.empty(0)
    for expert in range(stack.num_experts):
        numbers = served_form(stack.matrix(expert), dtype)
        numbers = numbers.T if stack.is_transposed else numbers
        if not expert:
            made = torch.empty((stack.num_experts, *numbers.shape), dtype=dtype)
        made[expert] = numbers
    return made


def _numbers(matrix: QuantisedMatrix, dtype: torch.dtype) -> torch.Tensor:
    return in_chunks(matrix.shape, dtype, lambda chunk: matrix.rows(chunk).dequantise())


def in_chunks(
    shape: tuple[int, int],
    dtype: torch.dtype,
    decode: Callable[[slice], torch.Tensor],
    *,
    width: int | None = None,
) -> torch.Tensor:
    """`[rows, columns]` in `dtype` of what `decode` makes of some rows in float32. `width`: numbers that a row takes
    meanwhile; None: its columns."""
    num_rows, num_columns = shape
    made = torch.empty(shape, dtype=dtype)
    step = max(1, CHUNK_ELEMENTS // max(1, num_columns if width is None else width))
    for start in range(0, num_rows, step):
        chunk = slice(start, min(num_rows, start + step))
        made[chunk] = decode(chunk)
    return made
