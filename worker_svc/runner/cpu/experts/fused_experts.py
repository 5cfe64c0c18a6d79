"""All experts of a layer as one module, which computes them in one native call."""

from __future__ import annotations

import ctypes
from typing import Any, TypeAlias

import torch
from torch import nn

from worker_svc.runner.cpu.experts.code_stack import CodeStack
from worker_svc.runner.cpu.experts.kinds import make_call, width_of
from worker_svc.runner.cpu.experts.order import gate_up_order
from worker_svc.runner.cpu.experts.packed_stack import PackedStack
from worker_svc.runner.cpu.fused import KEPT_TOLERANCE, TOLERANCES, NotFusableError
from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.runner.cpu.packed_linear import probe_rows, relative_error
from worker_svc.runner.model.quantised_experts import QuantisedExperts

LARGE_ROWS = 16.0
"""Factor of the probe's second half: what is clamped has to be clamped alike."""
Stack: TypeAlias = PackedStack | CodeStack


class FusedExperts(nn.Module):
    """Gated MLPs of which each row has some. A row's result does not depend on the other rows."""

    def __init__(self, experts: Any, kernels: Kernels) -> None:
        """Takes the place of `experts`, transformers' or quantised ones, whose weights are not kept. NotFusableError or
        PackingError if it cannot."""
        super().__init__()
        self._kernels = kernels
        plain = experts.experts if isinstance(experts, QuantisedExperts) else experts
        self.num_experts = plain.num_experts
        self._call = make_call(plain)
        self._gate_up, self._down = pack_gate_up(experts), pack_down(experts)
        self._calls = self._gate_up.calls, self._down.calls
        self._call.gate_up, self._call.down = map(ctypes.addressof, self._calls)
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
        kept = isinstance(experts, QuantisedExperts)
        dtype = experts.dtype if kept else experts.gate_up_proj.dtype
        rows = probe_rows(self._calls[1][0].outputs, dtype)
        num_rows = len(rows)
        rows = torch.cat((rows, LARGE_ROWS * rows))
        # Of kept ones two alone, the last and one amid them: the numbers of each are made for that.
        pairs = torch.tensor([[self.num_experts - 1, (self.num_experts - 1) // 2]] * len(rows))
        if not kept:
            pairs = (torch.arange(2 * len(rows)) * 7919 % self.num_experts).view(-1, 2)
        shares = torch.linspace(0.1, 0.9, 2 * len(rows)).view(-1, 2).to(dtype)
        actual, expected = self(rows, pairs, shares), experts(rows, pairs, shares)
        allowed = max(2 * TOLERANCES[dtype], KEPT_TOLERANCE if kept else 0.0)
        for part in (slice(0, num_rows), slice(num_rows, None)):
            if not relative_error(actual[part], expected[part]) <= allowed:
                raise NotFusableError("the fused experts give other results")


def pack_gate_up(experts: Any) -> Stack:
    """16 gates, 16 ups, and so on: they meet in one tile."""
    plain, bias, kept = _parts(experts, "gate_up_proj")
    if kept is not None:
        return kept
    weight = plain.gate_up_proj
    order = gate_up_order(width_of(plain), is_concatenated=plain.is_concatenated)
    return PackedStack(
        len(weight),
        lambda expert: _matrix(weight, expert, plain.is_transposed)[order],
        None if bias is None else bias[:, order],
    )


def pack_down(experts: Any) -> Stack:
    """The matrices that lead back."""
    plain, bias, kept = _parts(experts, "down_proj")
    if kept is not None:
        return kept
    weight = plain.down_proj
    return PackedStack(len(weight), lambda expert: _matrix(weight, expert, plain.is_transposed), bias)


def _parts(experts: Any, parameter: str) -> tuple[Any, torch.Tensor | None, CodeStack | None]:
    """transformers' experts, the biases of that parameter, and what stands for it if that is kept, with the biases."""
    if not isinstance(experts, QuantisedExperts):
        return experts, getattr(experts, f"{parameter}_bias", None), None
    bias, kept = getattr(experts.experts, f"{parameter}_bias", None), experts.stacks.get(parameter)
    if kept is not None and bias is not None:
        kept.set_biases(bias)
    return experts.experts, bias, kept


def _matrix(weight: torch.Tensor, expert: int, is_transposed: bool) -> torch.Tensor:
    """`[outputs, inputs]`."""
    return weight[expert].T if is_transposed else weight[expert]
