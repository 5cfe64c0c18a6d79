"""Modules that compute what a Hugging Face model's own do, in fewer launches: the GPU's counterpart of `fused.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from worker_svc.runner.attention.projections import gated_projections
from worker_svc.runner.cpu.fused import (
    ACTIVATIONS,
    NORM_VARIANTS,
    TOLERANCES,
    JoinedAttention,
    NotFusableError,
    is_attention,
    is_gated_mlp,
    is_rms_norm,
    known_projections,
    norm_epsilon,
)
from worker_svc.runner.cpu.optimize import Swap, swap_children
from worker_svc.runner.cpu.packed_linear import probe_rows, relative_error, weight_and_bias
from worker_svc.runner.cpu.unfused import tell_unfused
from worker_svc.runner.triton.joined_linear import JoinedLinear
from worker_svc.runner.triton.states.families import recurrent_layer
from worker_svc.runner.triton.write import TritonKernels


class TritonNorm(nn.Module):
    """A root mean square norm."""

    def __init__(self, norm: Any, kernels: TritonKernels) -> None:
        super().__init__()
        self.weight, self.epsilon = norm.weight, norm_epsilon(norm)
        self._kernels = kernels
        probe = probe_rows(len(self.weight), self.weight.dtype).to(self.weight.device)
        expected = norm(probe)
        errors = [relative_error(self._norm(probe, *variant), expected) for variant in NORM_VARIANTS]
        if not min(errors) <= TOLERANCES[probe.dtype]:
            raise NotFusableError("it is no root mean square norm of a known kind")
        self.weight_offset, self._rounds = NORM_VARIANTS[errors.index(min(errors))]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[..., D]` to `[..., D]`."""
        return self._norm(x, self.weight_offset, self._rounds)

    def _norm(self, x: torch.Tensor, offset: float, rounds: bool) -> torch.Tensor:
        return self._kernels.rms_norm(x.contiguous(), self.weight, self.epsilon, offset, rounds)


class TritonMLP(nn.Module):
    """A gated MLP: gates and ups in one product."""

    def __init__(self, mlp: Any, kernels: TritonKernels) -> None:
        super().__init__()
        parts = gated_projections(mlp)
        activation = None if parts is None else ACTIVATIONS.get(type(parts.activation).__name__)
        if parts is None or activation is None:
            raise NotFusableError("its activation or width is not one that the kernel knows")
        self._kernels, self._activation = kernels, activation
        self.gate_up_proj = JoinedLinear(*parts.inputs)
        self.down_proj = parts.down
        weight, _ = weight_and_bias(parts.inputs[0])
        probe = probe_rows(weight.shape[1], weight.dtype).to(weight.device)
        if not relative_error(self(probe), mlp(probe)) <= 2 * TOLERANCES[probe.dtype]:
            raise NotFusableError("the fused MLP gives other results")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[..., D]` to `[..., D]`."""
        return self.down_proj(self._kernels.gate(self.gate_up_proj(x), self._activation))  # type: ignore[no-any-return]


class TritonAttention(JoinedAttention):
    """Attention with joined weights and Triton's kernel."""

    def __init__(self, attn: Any, kernels: TritonKernels) -> None:
        super().__init__(attn, kernels, lambda norm: TritonNorm(norm, kernels))
        parts = known_projections(attn)
        self.qkv_proj = JoinedLinear(*parts.inputs, order=parts.order)
        self.o_proj = parts.out


@torch.inference_mode()
def fuse(model: nn.Module) -> None:
    """Swaps the modules known, in place. Every swapped part but attention was compared with the original."""
    kernels = TritonKernels()
    swaps: list[Swap] = [
        recurrent_layer,
        lambda module: TritonAttention(module, kernels) if is_attention(module) else None,
        lambda module: TritonMLP(module, kernels) if is_gated_mlp(module) else None,
        lambda module: TritonNorm(module, kernels) if is_rms_norm(module) else None,
    ]
    for swap in swaps:
        swap_children(model, swap)
    tell_unfused(model)
