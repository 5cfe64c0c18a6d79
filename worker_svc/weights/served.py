"""The form in which a quantised matrix is served."""

from __future__ import annotations

from collections.abc import Callable

import torch

from worker_svc.weights.quantised import QuantisedMatrix

CHUNK_ELEMENTS = 1 << 19
"""Numbers that are float32 at a time: what a thread takes beside the result."""


def served_form(name: str, matrix: QuantisedMatrix, dtype: torch.dtype) -> torch.Tensor:
    """The matrix called `name` as the model's parameter: its numbers in `dtype`."""
    outputs, inputs = matrix.shape

    def rows(chunk: slice) -> torch.Tensor:
        offsets = None if matrix.offsets is None else matrix.offsets[chunk]
        part = QuantisedMatrix(
            matrix.codes[chunk], matrix.scales[chunk], offsets, matrix.bits, matrix.group_size
        )
        return part.dequantise()

    return in_chunks((outputs, inputs), dtype, rows)


def in_chunks(
    shape: tuple[int, int], dtype: torch.dtype, decode: Callable[[slice], torch.Tensor]
) -> torch.Tensor:
    """`[rows, columns]` in `dtype` of what `decode` makes of some rows in float32."""
    num_rows, num_columns = shape
    made = torch.empty(shape, dtype=dtype)
    step = max(1, CHUNK_ELEMENTS // max(1, num_columns))
    for start in range(0, num_rows, step):
        chunk = slice(start, min(num_rows, start + step))
        made[chunk] = decode(chunk)
    return made
