"""Mixtures of experts whose decode steps need nothing from the host, so that CUDA graphs can hold them.

torch's grouped product copies the experts' numbers of rows to the host in all types but bfloat16, and Llama 4's experts
loop over the experts that some row has chosen."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers.integrations.moe import batched_mm_experts_forward, grouped_mm_experts_forward

from worker_svc.runner.attention import attention
from worker_svc.runner.model.llama4 import RoutedExperts
from worker_svc.runner.triton.batch import DecodeBatch

MOST_GATHERED_BYTES = 256 << 20
"""Weights that a product gathers at once: rows beyond that are a product of their own."""


def serve_experts(model: nn.Module) -> None:
    """Gives each experts module of `model`, in place, a forward whose decode steps run on the device alone."""
    for module in model.modules():
        if isinstance(module, RoutedExperts) or (
            hasattr(module, "is_transposed") and hasattr(module, "config")
        ):
            module.forward = DeviceExperts(module)


class DeviceExperts:
    """The forward of one experts module."""

    def __init__(self, experts: Any) -> None:
        """experts: of transformers, or those of Llama 4. Their own forward serves steps that are not captured."""
        self._experts, self._own = experts, experts.forward

    def __call__(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """`[T, D]` to `[T, D]`, of the experts `top_k_index` `[T, K]` with the weights `top_k_weights` `[T, K]`."""
        columns = hidden_states, top_k_index, top_k_weights
        if not isinstance(attention.current_or_none(), DecodeBatch):
            return self._own(*columns)  # type: ignore[no-any-return]
        if hidden_states.dtype == torch.bfloat16:
            return grouped_mm_experts_forward(self._experts, *columns)  # type: ignore[no-any-return]
        most = max(1, MOST_GATHERED_BYTES // (self._bytes_of_one() * top_k_index.shape[1]))
        parts = [slice(first, first + most) for first in range(0, len(hidden_states), most)]
        return torch.cat(
            [batched_mm_experts_forward(self._experts, *(c[part] for c in columns)) for part in parts]
        )

    def _bytes_of_one(self) -> int:
        """Bytes of the weights of one expert."""
        return sum(stack[0].numel() * stack.element_size() for stack in self._experts.parameters())
