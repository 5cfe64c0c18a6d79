"""Llama 4's modules as they are served: queries grow with the positions of a batch's rows, where transformers takes all
tokens for those of one sequence, and a row has its own experts, where transformers runs all of them for each."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers.models.llama4.modeling_llama4 import Llama4TextAttention, Llama4TextMoe

from worker_svc.runner.attention import attention
from worker_svc.runner.attention.families import chunk_of
from worker_svc.runner.errors import ModelLoadError


def serve_llama4(model: nn.Module) -> None:
    """Changes the model's modules, in place, where it has some of this family."""
    for module in list(model.modules()):
        if isinstance(module, Llama4TextAttention):
            module.register_forward_pre_hook(tell_positions, with_kwargs=True)
        for name, child in list(module.named_children()):
            if isinstance(child, Llama4TextMoe):
                setattr(module, name, RoutedMoe(child))


def check_chunks(model: nn.Module, block_size: int) -> None:
    """ModelLoadError for chunks of positions that are not in whole blocks."""
    for chunk in {chunk_of(module) for module in model.modules()} - {None}:
        if chunk is not None and chunk % block_size:
            raise ModelLoadError(
                f"attention_chunk_size {chunk} of the model is not in whole blocks of block_size {block_size}."
            )


class BatchPositions:
    """Stands for transformers' cache in an attention module: tells where the tokens of the batch are, and keeps
    nothing."""

    def get_seq_length(self, _layer: int) -> torch.Tensor:
        """int64 `[T]` what is to be added to 0, 1, 2 and so on."""
        positions = attention.current().position_tensor.long()
        return positions - torch.arange(len(positions), device=positions.device)

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, _layer: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values as they are."""
        return keys, values


def tell_positions(
    attn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call of an attention module on the paged cache, with the positions of the batch."""
    if attn.config._attn_implementation != attention.IMPLEMENTATION:
        return args, kwargs
    return args, kwargs | {"past_key_values": BatchPositions()}


class RoutedExperts(nn.Module):
    """The experts of a layer, as other families have them: of each row some, with weights for what they give."""

    has_gate = is_transposed = is_concatenated = True
    has_bias = has_post_expert_norm = _is_expert_parallel = False

    def __init__(self, experts: Any) -> None:
        """Shares the memory of `experts`' parameters."""
        super().__init__()
        self.num_experts: int = experts.num_experts
        self.gate_up_proj, self.down_proj = experts.gate_up_proj, experts.down_proj
        self.act_fn = experts.act_fn

    def _apply_gate(self, gate_up: torch.Tensor) -> torch.Tensor:
        """`[R, 2 I]` to `[R, I]`."""
        gate, up = gate_up.chunk(2, dim=-1)
        return up * self.act_fn(gate)  # type: ignore[no-any-return]

    def forward(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """`[T, D]` to `[T, D]`, of the experts `top_k_index` `[T, K]` with the weights `top_k_weights` `[T, K]`."""
        out = torch.zeros_like(hidden_states)
        for expert in torch.unique(top_k_index).tolist():
            rows, places = torch.where(top_k_index == expert)
            made = self._apply_gate(hidden_states[rows] @ self.gate_up_proj[expert]) @ self.down_proj[expert]
            out.index_add_(0, rows, made * top_k_weights[rows, places][:, None])
        return out


class RoutedMoe(nn.Module):
    """A shared expert, and chosen ones whose inputs are multiplied by the sigmoid of the router's scores."""

    def __init__(self, moe: Any) -> None:
        """Takes the place of `moe`, and shares its router and shared expert."""
        super().__init__()
        self.router, self.shared_expert = moe.router, moe.shared_expert
        self.experts = RoutedExperts(moe.experts)
        self._num_chosen: int = moe.top_k

    def forward(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`[..., D]` to `[T, D]`, and the scores `[T, experts]`."""
        rows = hidden_states.reshape(-1, hidden_states.shape[-1])
        _, scores = self.router(rows)
        best, chosen = scores.topk(self._num_chosen, dim=1)
        shares = best.float().sigmoid().to(rows.dtype)
        # A row for each of its experts: they are not linear, and so weights of their outputs would not do.
        inputs = (rows[:, None] * shares[..., None]).flatten(0, 1)
        made = self.experts(inputs, chosen.reshape(-1, 1), torch.ones_like(shares).reshape(-1, 1))
        return self.shared_expert(rows) + made.view(*shares.shape, -1).sum(dim=1), scores
