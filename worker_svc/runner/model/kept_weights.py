"""Which weights of a model stay whole numbers, and the layers that hold them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import torch
from torch import nn

from worker_svc.runner.model.quantised_linear import QuantisedLinear
from worker_svc.weights.quantised import QuantisedMatrix
from worker_svc.weights.rounding import GROUP_SIZE, round_matrix
from worker_svc.weights.served import served_form

HEAD_BITS = 8
"""Bits of the head where weights are rounded at load: errors there go straight into the scores of tokens."""


class Quantization(StrEnum):
    """In what form linear layers are served on a CPU."""

    AUTO = "auto"
    """Weights that are whole numbers in the checkpoint stay so; all others are what the dtype says."""
    NONE = "none"
    """All weights are what the dtype says."""
    INT8 = "int8"
    """Weights that are no whole numbers in the checkpoint are rounded, too."""
    INT4 = "int4"
    """Like INT8."""


ROUNDED_BITS = {Quantization.INT8: 8, Quantization.INT4: 4}


class KeptWeights:
    """Takes weights of linear layers aside while a model is loaded, and puts them into its layers afterwards."""

    def __init__(
        self, quantization: Quantization, empty: nn.Module, fits: Callable[[QuantisedMatrix], bool]
    ) -> None:
        """`empty` is the model without numbers; `fits` says whether a kernel can read a matrix."""
        self._rounded_bits = ROUNDED_BITS.get(quantization)
        self._fits = fits
        self._linears = {
            name + ".weight" for name, module in empty.named_modules() if type(module) is nn.Linear
        }
        self._head, self._tied = _head_names(empty)
        self._matrices: dict[str, QuantisedMatrix] = {}

    def form(self, name: str, made: torch.Tensor | QuantisedMatrix, dtype: torch.dtype) -> torch.Tensor:
        """The parameter that the model is to have: one without memory where the weight is kept. Called by threads."""
        if name in self._linears:
            matrix = self._matrix(name, made)
            if matrix is not None:
                self._matrices[name] = matrix
                return torch.zeros((), dtype=dtype).expand(matrix.shape)
        if name == self._tied:
            matrix = self._matrix(self._head, made)
            if matrix is not None:
                self._matrices[self._head] = matrix
        return served_form(made, dtype) if isinstance(made, QuantisedMatrix) else made

    @property
    def told(self) -> str:
        """How many weights are kept in which form, in a few words: `168 int4/32, 1 int8/32`."""
        forms = Counter(
            f"int{matrix.bits}/{matrix.group_size}{'' if matrix.offsets is None else '+'}"
            for matrix in self._matrices.values()
        )
        return ", ".join(f"{count} {form}" for form, count in sorted(forms.items()))

    def put_into(self, model: nn.Module, dtype: torch.dtype) -> int:
        """Swaps the layers whose weights were kept; how many."""
        for name, matrix in self._matrices.items():
            path, _, child = name.removesuffix(".weight").rpartition(".")
            parent = model.get_submodule(path)
            linear: Any = getattr(parent, child)
            setattr(parent, child, QuantisedLinear(matrix, linear.bias, dtype))
        return len(self._matrices)

    def _matrix(self, name: str, made: torch.Tensor | QuantisedMatrix) -> QuantisedMatrix | None:
        """The weight as it is kept; None: it is not."""
        if isinstance(made, torch.Tensor):
            if self._rounded_bits is None or made.shape[1] % GROUP_SIZE:
                return None
            made = round_matrix(made, HEAD_BITS if name == self._head else self._rounded_bits)
        return made if self._fits(made) else None


def _head_names(model: Any) -> tuple[str, str]:
    """Names of the head's weight and, where they are one, of the embedding's; empty where there are none."""
    names = {module: name + ".weight" for name, module in model.named_modules()}
    head = names.get(model.get_output_embeddings(), "")
    is_tied = bool(getattr(model.config, "tie_word_embeddings", False))
    return head, names.get(model.get_input_embeddings(), "") if head and is_tied else ""
