"""Act-order: the inputs of a group do not lie one behind another."""

from __future__ import annotations

import torch

from worker_svc.runner.errors import ModelLoadError
from worker_svc.weights.quantised import QuantisedMatrix
from worker_svc.weights.served import in_chunks
from worker_svc.weights.tensor_file import StoredTensor


def in_order(
    matrix: QuantisedMatrix, order: StoredTensor, dtype: torch.dtype
) -> torch.Tensor | QuantisedMatrix:
    """The matrix itself where its groups do lie one behind another, else its numbers, each with the scale of the group
    that `order` names for its input. ModelLoadError for a group that there is not."""
    group_of_input = order.load().long()
    outputs, inputs = matrix.shape
    num_groups = inputs // matrix.group_size
    if bool(((group_of_input < 0) | (group_of_input >= num_groups)).any()):
        raise ModelLoadError(f"{order.name} names a group that is none of the {num_groups}.")
    if bool((group_of_input == torch.arange(inputs) // matrix.group_size).all()):
        return matrix

    def rows(chunk: slice) -> torch.Tensor:
        numbers = matrix.codes[chunk].float() * matrix.scales[chunk][:, group_of_input]
        if matrix.offsets is not None:
            numbers += matrix.offsets[chunk][:, group_of_input]
        return numbers

    return in_chunks((outputs, inputs), dtype, rows)
