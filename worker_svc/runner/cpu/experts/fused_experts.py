"""All experts of a layer as one module, which computes them in one native call."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import nn

from worker_svc.runner.cpu.experts.packed_stack import PackedStack
from worker_svc.runner.cpu.fused import ACTIVATIONS, TOLERANCES, NotFusableError
from worker_svc.runner.cpu.native.kernels import LANES, Activation, Kernels
from worker_svc.runner.cpu.native.structs import ExpertsCall
from worker_svc.runner.cpu.packed_linear import probe_rows, relative_error

PARAMETERS = ("gate_up_proj", "down_proj")
LARGE_ROWS = 16.0
"""Factor of the probe's second half: what is clamped has to be clamped alike."""


class FusedExperts(nn.Module):
    """Gated MLPs of which each row has some. A row's result does not depend on the other rows."""

    def __init__(self, experts: Any, kernels: Kernels) -> None:
        """Takes the place of `experts`, whose weights are not kept. NotFusableError or PackingError if it cannot."""
        super().__init__()
        self._kernels = kernels
        self.num_experts = len(experts.gate_up_proj)
        self._call = make_call(experts)
        self._gate_up, self._down = pack_gate_up(experts), pack_down(experts)
        self._call.gate_up = ctypes.addressof(self._gate_up.calls)
        self._call.down = ctypes.addressof(self._down.calls)
        self._call.num_experts = self.num_experts
        self._compare(experts)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights of all experts."""
        return self._gate_up.weight_bytes + self._down.weight_bytes

    def forward(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """`[T, D]` to `[T, D]`, of the experts `top_k_index` `[T, K]` with the weights `top_k_weights` `[T, K]`."""
        rows, chosen = hidden_states.contiguous(), top_k_index.long().contiguous()
        weights = top_k_weights.float().contiguous()
        out = torch.empty_like(rows)
        call = self._call
        call.x, call.out = rows.data_ptr(), out.data_ptr()
        call.chosen, call.weights = chosen.data_ptr(), weights.data_ptr()
        call.num_rows, call.num_chosen = chosen.shape
        call.is_bf16 = rows.dtype == torch.bfloat16
        self._kernels.mix_experts(call)
        return out

    def _compare(self, experts: Any) -> None:
        weight = experts.gate_up_proj
        rows = probe_rows(self._down.calls[0].outputs, weight.dtype)
        rows = torch.cat((rows, LARGE_ROWS * rows))
        chosen = (torch.arange(2 * len(rows)) * 7919 % self.num_experts).view(-1, 2)
        shares = torch.linspace(0.1, 0.9, 2 * len(rows)).view(-1, 2).to(weight.dtype)
        actual, expected = self(rows, chosen, shares), experts(rows, chosen, shares)
        for part in (slice(0, 3), slice(3, None)):
            if not relative_error(actual[part], expected[part]) <= 2 * TOLERANCES[weight.dtype]:
                raise NotFusableError("the fused experts give other results")


def is_experts(module: nn.Module) -> bool:
    """True for experts as transformers has them: two parameters for all of a layer."""
    weights = [getattr(module, name, None) for name in PARAMETERS]
    is_gated = getattr(module, "has_gate", False) and not getattr(module, "has_post_expert_norm", False)
    return is_gated and all(isinstance(weight, nn.Parameter) and weight.dim() == 3 for weight in weights)


def make_call(experts: Any) -> ExpertsCall:
    """The call with the activation alone. NotFusableError for one that the kernel does not know."""
    if hasattr(experts, "alpha") and hasattr(experts, "limit"):
        return ExpertsCall(alpha=experts.alpha, limit=experts.limit, activation=Activation.CLAMPED)
    activation = ACTIVATIONS.get(type(getattr(experts, "act_fn", None)).__name__)
    if activation is None:
        raise NotFusableError("the experts' activation is not one that the kernel knows")
    return ExpertsCall(activation=activation)


def pack_gate_up(experts: Any) -> PackedStack:
    """16 gates, 16 ups, and so on: they meet in one tile."""
    weight = experts.gate_up_proj
    width = weight.shape[2 if experts.is_transposed else 1] // 2
    if width % LANES:
        raise NotFusableError(f"the width of an expert is no multiple of {LANES}")
    order = gate_up_order(width, is_concatenated=experts.is_concatenated)
    bias = getattr(experts, "gate_up_proj_bias", None)
    return PackedStack(
        len(weight),
        lambda expert: _matrix(weight, expert, experts.is_transposed)[order],
        None if bias is None else bias[:, order],
    )


def pack_down(experts: Any) -> PackedStack:
    """The matrices that lead back."""
    weight = experts.down_proj
    return PackedStack(
        len(weight),
        lambda expert: _matrix(weight, expert, experts.is_transposed),
        getattr(experts, "down_proj_bias", None),
    )


def gate_up_order(width: int, *, is_concatenated: bool) -> torch.Tensor:
    """int64 `[2 * width]` rows of gates and ups, which lie one kind behind the other or by turns, in the kernel's
    order."""
    rows = torch.arange(2 * width)
    gates, ups = (rows[:width], rows[width:]) if is_concatenated else (rows[::2], rows[1::2])
    return torch.stack((gates.view(-1, LANES), ups.view(-1, LANES)), dim=1).flatten()


def _matrix(weight: torch.Tensor, expert: int, is_transposed: bool) -> torch.Tensor:
    """`[outputs, inputs]`."""
    return weight[expert].T if is_transposed else weight[expert]
