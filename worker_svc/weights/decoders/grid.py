"""Scales that lie over a matrix in a grid: one for all of it, for an output, for a group of inputs, or for a block."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from worker_svc.runner.errors import ModelLoadError
from worker_svc.weights.decoders.parts import load_scales
from worker_svc.weights.tensor_file import StoredTensor


@dataclass(frozen=True)
class Grid:
    """Where in a stack of matrices `[matrices * outputs, inputs]` which scale holds."""

    outputs: int
    """Rows of one matrix."""
    grid_rows: int
    """Rows of scales for one matrix; 0: one scale for all matrices."""
    grid_columns: int
    rows: int
    """Outputs that share a scale."""
    columns: int
    """Inputs that share a scale."""

    def scaled(self, numbers: torch.Tensor, scales: torch.Tensor, chunk: slice) -> torch.Tensor:
        """The rows `chunk` in float32, multiplied in their place by `scales` `[matrices * grid_rows, grid columns]`."""
        rows = torch.arange(chunk.start, chunk.stop)
        places = rows // self.outputs * self.grid_rows + rows % self.outputs // self.rows
        own = scales[places]
        if self.grid_columns > 1:
            own = own.repeat_interleave(self.columns, dim=1)[:, : numbers.shape[1]]
        return numbers.mul_(own)


def find_grid(shape: tuple[int, ...], scales: StoredTensor, block: tuple[int, int] | None = None) -> Grid:
    """How the scales lie over a matrix, or over a stack of them, of that shape. `block` is what the checkpoint says of
    blocks of outputs and inputs; without it, groups are as wide as fills the row. ModelLoadError where they do not
    fit."""
    *stack, outputs, inputs = shape
    lengths = list(scales.shape)
    if lengths in ([], [1], stack, [*stack, 1], [1] * len(shape)):
        return Grid(outputs, 0 if math.prod(lengths) == 1 else 1, 1, outputs, inputs)
    if lengths == [*stack, outputs]:
        lengths.append(1)
    if lengths[:-2] != stack or len(lengths) != len(shape):
        raise _unfit(scales, shape)
    rows, columns = lengths[-2:]
    if block is not None:
        if (rows, columns) != (-(-outputs // block[0]), -(-inputs // block[1])):
            raise _unfit(scales, shape)
        return Grid(outputs, rows, columns, *block)
    if rows not in (1, outputs) or columns < 1 or inputs % columns:
        raise _unfit(scales, shape)
    return Grid(outputs, rows, columns, outputs // rows, inputs // columns)


def grid_scales(scales: StoredTensor, grid: Grid) -> torch.Tensor:
    """float32, a row for each row of the grid. A byte is a power of two, less 127 in the exponent."""
    loaded = powers_of_two(scales) if scales.dtype == torch.uint8 else load_scales(scales)
    return loaded.reshape(-1, grid.grid_columns)


def powers_of_two(scales: StoredTensor) -> torch.Tensor:
    """float32 of exponents that are stored in bytes, 127 added. ModelLoadError for 255, which is no number."""
    exponents = scales.load()
    if bool((exponents == 255).any()):
        raise ModelLoadError(f"{scales.name} has a scale that is not finite.")
    powers = exponents.to(torch.int32) - 127
    return torch.ldexp(torch.ones((), dtype=torch.float32).expand(powers.shape), powers)


def _unfit(scales: StoredTensor, shape: tuple[int, ...]) -> ModelLoadError:
    return ModelLoadError(
        f"{scales.name} is {list(scales.shape)}, which does not fit a weight of {list(shape)}."
    )
