"""Which weights of a model stay whole numbers, and the layers that hold them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import torch
from torch import nn

from worker_svc.runner.cpu.experts.code_stack import CodeStack
from worker_svc.runner.cpu.experts.kinds import PARAMETERS, can_fuse, is_experts, width_of
from worker_svc.runner.cpu.experts.order import gate_up_order
from worker_svc.runner.cpu.packed_linear import PackingError
from worker_svc.runner.model.quantised_experts import QuantisedExperts
from worker_svc.runner.model.quantised_linear import QuantisedLinear
from worker_svc.runner.recurrent.layers import weights_read
from worker_svc.weights.held import HeldMatrix, hold, hold_rounded
from worker_svc.weights.quantised import QuantisedMatrix
from worker_svc.weights.rounding import GROUP_SIZE
from worker_svc.weights.served import served_form
from worker_svc.weights.stack import MatrixStack, as_stack
from worker_svc.weights.weight import Stored, Weight

EIGHT_BITS = ("q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value", "Wqkv", "c_attn")
"""Layers that are rounded to 8 bits where all others are to 4, as is the head. Values cost most for their size
(docs/performance.md); queries and keys are one product with them, whose bits are the most of any. An error of the head
goes straight into the scores of tokens."""


LARGEST_GROUP_BYTES = 8
"""A scale and an offset in float32."""


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
    """Takes weights of linear layers and of experts aside while a model is loaded, and puts them into its layers
    afterwards."""

    def __init__(
        self,
        quantization: Quantization,
        empty: nn.Module,
        fits: Callable[[QuantisedMatrix], bool],
        round_matrix: Callable[[torch.Tensor, int], QuantisedMatrix],
    ) -> None:
        """`empty` is the model without numbers; `fits` says whether a kernel can read a matrix; `round_matrix` rounds
        one to so many bits, if the quantization wants that."""
        self._rounded_bits = ROUNDED_BITS.get(quantization)
        self._fits = fits
        self._round = round_matrix
        own = weights_read(empty)
        self._linears = {
            name + ".weight"
            for name, module in empty.named_modules()
            if type(module) is nn.Linear and name not in own
        }
        self._head, self._tied = _head_names(empty)
        self._matrices: dict[str, HeldMatrix] = {}
        self.experts = {
            name: module for name, module in empty.named_modules() if is_experts(module) and can_fuse(module)
        }
        """transformers' experts of which the kernel knows the kind, by their names."""
        self._stacks: dict[str, dict[str, CodeStack]] = {}

    def form(self, name: str, made: Stored, dtype: torch.dtype) -> torch.Tensor:
        """The parameter that the model is to have: one without memory where the weight is kept. Called by threads."""
        path, _, parameter = name.rpartition(".")
        if path in self.experts and parameter in PARAMETERS:
            return self._form_of_experts(path, parameter, made, dtype)
        if isinstance(made, MatrixStack):
            return served_form(made, dtype)
        if name in self._linears:
            held = self._held(name, made)
            if held is not None:
                self._matrices[name] = held
                return torch.zeros((), dtype=dtype).expand(held.shape)
        if name == self._tied:
            held = self._held(self._head, made)
            if held is not None:
                self._matrices[self._head] = held
        return served_form(made, dtype)

    def num_bytes(self, weight: Weight, dtype: torch.dtype) -> int:
        """About the bytes that a weight takes as it is served, before it is read: of kept ones no fewer."""
        plain, elements = weight.num_elements * dtype.itemsize, weight.num_elements
        path, _, parameter = weight.name.rpartition(".")
        can_be_kept = weight.name in self._linears or (path in self.experts and parameter in PARAMETERS)
        bits = weight.bits
        if bits is None and self._rounded_bits is not None and weight.shape[-1] % GROUP_SIZE == 0:
            bits = self._bits_of(weight.name)
        if bits is None or not (can_be_kept or weight.name == self._tied):
            return plain
        kept = elements * bits // 8 + elements // GROUP_SIZE * LARGEST_GROUP_BYTES
        return plain + kept if weight.name == self._tied else min(kept, plain)

    @property
    def told(self) -> str:
        """How many weights are kept in which form, in a few words: `168 int4/32, 1 int8/32`."""
        forms = Counter(matrix.form for matrix in self._matrices.values())
        for stacks in self._stacks.values():
            for stack in stacks.values():
                forms.update(stack.forms)
        return ", ".join(f"{count} {form}" for form, count in sorted(forms.items()))

    def put_into(self, model: nn.Module, dtype: torch.dtype) -> int:
        """Swaps the layers whose weights were kept, which it gives up; how many."""
        num_kept = len(self._matrices)
        while self._matrices:
            name, held = self._matrices.popitem()
            path, _, child = name.removesuffix(".weight").rpartition(".")
            parent = model.get_submodule(path)
            linear: Any = getattr(parent, child)
            setattr(parent, child, QuantisedLinear(held, linear.bias, dtype))
        for name, stacks in self._stacks.items():
            path, _, child = name.rpartition(".")
            parent = model.get_submodule(path)
            setattr(parent, child, QuantisedExperts(getattr(parent, child), stacks, dtype))
        num_stacked = sum(len(stack.forms) for stacks in self._stacks.values() for stack in stacks.values())
        return num_kept + num_stacked

    def _form_of_experts(self, path: str, parameter: str, made: Stored, dtype: torch.dtype) -> torch.Tensor:
        experts: Any = self.experts[path]
        if isinstance(made, torch.Tensor):
            made = as_stack(made, is_transposed=experts.is_transposed)
        assert isinstance(made, MatrixStack)
        stack = self._stack(made, experts, parameter)
        if stack is None:
            return served_form(made, dtype)
        self._stacks.setdefault(path, {})[parameter] = stack
        return torch.zeros((), dtype=dtype).expand(getattr(experts, parameter).shape)

    def _stack(self, made: MatrixStack, experts: Any, parameter: str) -> CodeStack | None:
        """The matrices as they are kept; None: they are not."""
        order = None
        if parameter == PARAMETERS[0]:
            order = gate_up_order(width_of(experts), is_concatenated=experts.is_concatenated)

        def matrix(expert: int) -> QuantisedMatrix:
            kept = self._matrix(parameter, made.matrix(expert))
            if kept is None:
                raise PackingError("it is no matrix of whole numbers that the kernel reads")
            return kept

        try:
            return CodeStack(made.num_experts, matrix, order)
        except PackingError:
            return None

    def _held(self, name: str, made: torch.Tensor | QuantisedMatrix) -> HeldMatrix | None:
        """The weight as it is kept until its layer is packed; None: it is not kept."""
        if not isinstance(made, torch.Tensor):
            return hold(made) if self._fits(made) else None
        if self._matrix(name, made[:1]) is None:
            return None
        bits = self._bits_of(name)
        return hold_rounded(made, lambda rows: self._round(rows, bits))

    def _matrix(self, name: str, made: torch.Tensor | QuantisedMatrix) -> QuantisedMatrix | None:
        """The weight as it is kept; None: it is not."""
        if isinstance(made, torch.Tensor):
            if self._rounded_bits is None or made.shape[1] % GROUP_SIZE:
                return None
            made = self._round(made.contiguous(), self._bits_of(name))
        return made if self._fits(made) else None

    def _bits_of(self, name: str) -> int:
        assert self._rounded_bits is not None
        is_sensitive = name == self._head or name.removesuffix(".weight").rpartition(".")[2] in EIGHT_BITS
        return 8 if is_sensitive else self._rounded_bits


def _head_names(model: Any) -> tuple[str, str]:
    """Names of the head's weight and, where they are one, of the embedding's; empty where there are none."""
    names = {module: name + ".weight" for name, module in model.named_modules()}
    head = names.get(model.get_output_embeddings(), "")
    is_tied = bool(getattr(model.config, "tie_word_embeddings", False))
    return head, names.get(model.get_input_embeddings(), "") if head and is_tied else ""
