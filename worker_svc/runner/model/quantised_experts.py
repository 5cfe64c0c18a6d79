"""The experts of a layer as a quantised checkpoint defines them: whole numbers with scales."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from copy import copy
from typing import Any

import torch
from torch import nn

from worker_svc.runner.cpu.experts.code_stack import CodeStack
from worker_svc.weights.served import served_form


class QuantisedExperts(nn.Module):
    """Stands for transformers' experts until the kernel has them; its forward is the definition, and slow."""

    def __init__(self, experts: Any, stacks: dict[str, CodeStack], dtype: torch.dtype) -> None:
        """`stacks` are the kept ones of `experts`' two parameters, which it loses; `dtype` is that of the model."""
        super().__init__()
        self.experts = experts
        self.num_experts: int = experts.num_experts
        self.dtype = dtype
        self.is_skipped = False
        """Gives zeros: whoever runs the model wants shapes alone."""
        self.stacks = stacks
        for name in stacks:
            setattr(experts, name, None)

    def forward(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """`[T, D]` to `[T, D]`, of the experts `top_k_index` `[T, K]` with the weights `top_k_weights` `[T, K]`."""
        total = torch.zeros(hidden_states.shape, dtype=torch.float32)
        if self.is_skipped:
            return total.to(hidden_states.dtype)
        for expert in torch.unique(top_k_index).tolist():
            rows, places = torch.where(top_k_index == expert)
            only = torch.zeros(len(rows), 1, dtype=top_k_index.dtype)
            part = self._alone(expert)(hidden_states[rows], only, top_k_weights[rows, places][:, None])
            total.index_add_(0, rows, part.float())
        return total.to(hidden_states.dtype)

    def _alone(self, expert: int) -> Any:
        """transformers' experts, of which there is one, with its numbers in the dtype of the model."""
        alone = copy(self.experts)
        alone.num_experts = 1
        alone._parameters = {
            name: None
            if parameter is None
            else nn.Parameter(parameter[expert : expert + 1], requires_grad=False)
            for name, parameter in self.experts._parameters.items()
        }
        for name, stack in self.stacks.items():
            numbers = served_form(stack.matrix(expert), self.dtype)
            numbers = numbers.T if self.experts.is_transposed else numbers
            alone._parameters[name] = nn.Parameter(numbers[None], requires_grad=False)
        return alone


@contextlib.contextmanager
def skipping_experts(model: nn.Module) -> Iterator[None]:
    """Lets the model run without its quantised experts."""
    experts = [module for module in model.modules() if isinstance(module, QuantisedExperts)]
    for each in experts:
        each.is_skipped = True
    try:
        yield
    finally:
        for each in experts:
            each.is_skipped = False
