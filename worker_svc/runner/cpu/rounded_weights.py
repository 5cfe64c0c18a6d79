"""Weights rounded at load: to 8 bits by the largest number of a group, to 4 by the kernel's search."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch

from worker_svc.runner.cpu.native.kernels import DTYPES, ROUNDED_GROUP, Kernels
from worker_svc.runner.errors import ModelLoadError
from worker_svc.weights.quantised import QuantisedMatrix
from worker_svc.weights.rounding import round_to_eight_bits

Round: TypeAlias = Callable[[torch.Tensor, int], QuantisedMatrix]
"""Rounds a matrix to 8 or 4 bits."""


def rounding(kernels: Kernels | None) -> Round:
    """Rounds by these kernels: a matrix `[outputs, inputs]` in any dtype, inputs in whole groups of 32. Scales, and
    offsets of 4 bits, are numbers of float16 if they can be. Numbers that are not finite leave a scale that is not.
    ModelLoadError for 4 bits where there are no kernels: torch alone would search for hours."""

    def round_matrix(weight: torch.Tensor, bits: int) -> QuantisedMatrix:
        if kernels is None and bits == 8:
            return round_to_eight_bits(weight)
        if kernels is None:
            raise ModelLoadError("weights of 4 bits are found by the native kernels, which are not here")
        numbers = weight if weight.dtype in DTYPES else weight.float()
        if bits == 8:
            codes, scales = kernels.round_to_bytes(numbers)
            return QuantisedMatrix(codes, scales, None, bits, ROUNDED_GROUP)
        codes, scales, offsets = kernels.round_groups(numbers)
        return QuantisedMatrix(codes, scales, offsets, bits, ROUNDED_GROUP)

    return round_matrix
