"""Kimi's delta attention: a delta net whose decays, and gates, are by channel and come from products of low rank."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from worker_svc.runner.cpu.fused import NotFusableError
from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.runner.cpu.native.structs import DeltaNetCall
from worker_svc.runner.cpu.recurrent.delta_net import Heads, call_of
from worker_svc.runner.cpu.recurrent.native_layer import Mixer, NativeLayer
from worker_svc.runner.cpu.recurrent.side_by_side import SideBySide
from worker_svc.runner.recurrent.layers import RecurrentForward
from worker_svc.runner.recurrent.rows import StateRows

FAMILIES = ("KimiLinearDeltaAttention",)
"""Names of transformers' classes."""


def is_kimi_delta(module: nn.Module) -> bool:
    """True for the layers that `NativeKimiDelta` is made for."""
    return type(module).__name__ in FAMILIES and isinstance(module.forward, RecurrentForward)


class NativeKimiDelta(NativeLayer):
    """A delta net with a decay for each channel of a key.

    The first halves of decays and gates are with the other inputs in one product, the second ones products of their
    own; what is behind these is one native call.
    """

    kind = "delta_net"
    decay_proj: nn.Module
    gate_proj: nn.Module

    def __init__(self, layer: Any, kernels: Kernels) -> None:
        """Takes the place of `layer`; see `NativeLayer`. NotFusableError for shapes that the kernel does not take."""
        call, tensors = make_call(layer)
        self._call, self._rank = call, int(layer.head_dim)
        forget = layer.forget_gate
        projections = (layer.q_proj, layer.k_proj, layer.v_proj, layer.b_proj)
        super().__init__(
            layer,
            kernels,
            SideBySide((*projections, forget.f_a_proj, layer.g_a_proj), None),
            layer.o_proj,
            Mixer(call, layer.num_heads * layer.head_dim, tensors),
            decay_proj=forget.f_b_proj,
            gate_proj=layer.g_b_proj,
        )

    def mix(self, projected: torch.Tensor, rows: StateRows) -> torch.Tensor:
        """`[T, width]` for what the product ahead gives `[T, ...]`. Writes the rows' targets."""
        _, of_decays, of_gates = projected.tensor_split((-2 * self._rank, -self._rank), dim=-1)
        decays = self.decay_proj(of_decays.contiguous())
        gates = self.gate_proj(of_gates.contiguous())
        self._call.decays, self._call.gates = decays.data_ptr(), gates.data_ptr()
        return super().mix(projected, rows)


def make_call(layer: Any) -> tuple[DeltaNetCall, list[torch.Tensor]]:
    """The call without what changes with each batch, and the tensors that it points to. NotFusableError for what the
    kernel does not take."""
    if layer.activation != "silu":
        raise NotFusableError(f"{layer.activation} behind its convolution is none that the kernel knows")
    heads = Heads(layer.num_heads, layer.num_heads, layer.head_dim, layer.head_dim)
    gate = layer.forget_gate
    call, tensors = call_of(heads, layer.conv1d, gate.A_log, gate.dt_bias, layer.o_norm)
    call.width = heads.channels + layer.num_heads + 2 * layer.head_dim
    return call, tensors
