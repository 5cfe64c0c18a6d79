"""The matrices of all experts of a layer, each made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from worker_svc.weights.quantised import QuantisedMatrix


@dataclass(frozen=True)
class MatrixStack:
    """What stands for a parameter of three dimensions."""

    num_experts: int
    matrix: Callable[[int], torch.Tensor | QuantisedMatrix]
    """The matrix `[outputs, inputs]` of an expert."""
    is_transposed: bool
    """The model's parameter is `[experts, inputs, outputs]`, not `[experts, outputs, inputs]`."""


def as_stack(parameter: torch.Tensor, *, is_transposed: bool) -> MatrixStack:
    """The matrices of a parameter `[experts, outputs, inputs]`, or the other way round."""
    return MatrixStack(
        len(parameter),
        lambda expert: parameter[expert].T if is_transposed else parameter[expert],
        is_transposed,
    )
