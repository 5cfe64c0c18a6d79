"""Gated delta nets: convolution, rule, norm and gate of all rows are one native call between two products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from worker_svc.runner.cpu.fused import NotFusableError
from worker_svc.runner.cpu.native.kernels import DTYPES, LANES, Kernels
from worker_svc.runner.cpu.native.structs import DeltaNetCall
from worker_svc.runner.cpu.recurrent.native_layer import KERNELS, Mixer, NativeLayer
from worker_svc.runner.cpu.recurrent.side_by_side import SideBySide
from worker_svc.runner.recurrent.layers import RecurrentForward


@dataclass(frozen=True)
class Parts:
    """A family's names for what all gated delta nets have."""

    inputs: SideBySide
    """Gives queries, keys, values, gates, updates and decays."""
    out: nn.Module
    norm: Any
    update_scale: float = 1.0


def _qwen3_5(layer: Any) -> Parts:
    inputs = (layer.in_proj_qkv, layer.in_proj_z, layer.in_proj_b, layer.in_proj_a)
    return Parts(SideBySide(inputs, None), layer.out_proj, layer.norm)


def _qwen3_next(layer: Any) -> Parts:
    """A key head's queries, keys, values and gates lie together there, and its updates and decays."""
    group = layer.num_v_heads // layer.num_k_heads
    keys, values = layer.head_k_dim, group * layer.head_v_dim
    wide = torch.arange(layer.in_proj_qkvz.out_features).view(layer.num_k_heads, -1)
    narrow = torch.arange(layer.in_proj_ba.out_features).view(layer.num_k_heads, -1) + wide.numel()
    pieces = (*torch.split(wide, [keys, keys, values, values], dim=1), *torch.split(narrow, group, dim=1))
    order = torch.cat([piece.flatten() for piece in pieces])
    return Parts(SideBySide((layer.in_proj_qkvz, layer.in_proj_ba), order), layer.out_proj, layer.norm)


def _olmo(layer: Any) -> Parts:
    inputs = (layer.q_proj, layer.k_proj, layer.v_proj, layer.g_proj, layer.b_proj, layer.a_proj)
    scale = 2.0 if layer.allow_neg_eigval else 1.0
    return Parts(SideBySide(inputs, None), layer.o_proj, layer.o_norm, scale)


FAMILIES: dict[str, Callable[[Any], Parts]] = {
    "Qwen3_5GatedDeltaNet": _qwen3_5,
    "Qwen3_5MoeGatedDeltaNet": _qwen3_5,
    "Qwen3NextGatedDeltaNet": _qwen3_next,
    "OlmoHybridGatedDeltaNet": _olmo,
}
"""By the names of transformers' classes."""


def is_delta_net(module: nn.Module) -> bool:
    """True for the layers that `NativeDeltaNet` is made for."""
    return type(module).__name__ in FAMILIES and isinstance(module.forward, RecurrentForward)


class NativeDeltaNet(NativeLayer):
    """A gated delta net."""

    kind = "delta_net"

    def __init__(self, layer: Any, kernels: Kernels) -> None:
        """Takes the place of `layer`; see `NativeLayer`. NotFusableError for shapes that the kernel does not take."""
        parts = FAMILIES[type(layer).__name__](layer)
        call, tensors = make_call(layer, parts)
        mixer = Mixer(call, layer.num_v_heads * layer.head_v_dim, tensors)
        super().__init__(layer, kernels, parts.inputs, parts.out, mixer)


def make_call(layer: Any, parts: Parts) -> tuple[DeltaNetCall, list[torch.Tensor]]:
    """The call without what changes with each batch, and the tensors that it points to. NotFusableError for shapes that
    the kernel does not take."""
    heads = Heads(layer.num_k_heads, layer.num_v_heads, layer.head_k_dim, layer.head_v_dim)
    call, tensors = call_of(heads, layer.conv1d, layer.A_log, layer.dt_bias, parts.norm)
    call.width = heads.channels + heads.num_values * (heads.value_dim + 2)
    call.update_scale = parts.update_scale
    return call, tensors


@dataclass(frozen=True)
class Heads:
    """The heads of a layer."""

    num_keys: int
    num_values: int
    key_dim: int
    value_dim: int

    @property
    def channels(self) -> int:
        """Channels of its convolution: queries, keys and values."""
        return 2 * self.num_keys * self.key_dim + self.num_values * self.value_dim


def call_of(
    heads: Heads, convolution: nn.Conv1d, rates_log: torch.Tensor, step_bias: torch.Tensor, norm: Any
) -> tuple[DeltaNetCall, list[torch.Tensor]]:
    """What the calls of all delta nets have in common. NotFusableError for shapes that the kernel does not take."""
    weight = convolution.weight.detach()
    kernel = weight.shape[-1]
    if kernel not in KERNELS or convolution.bias is not None:
        raise NotFusableError(f"its convolution over {kernel} inputs is none that the kernel knows")
    if weight.dtype not in DTYPES or heads.value_dim % LANES or heads.num_values % heads.num_keys:
        raise NotFusableError("its heads are not those that the kernel takes")
    tensors = [
        weight[:, 0].T.float(),
        rates_log.detach().float().flatten().exp(),
        step_bias.detach().float(),
        norm.weight.detach().float(),
    ]
    tensors = [tensor.contiguous() for tensor in tensors]
    call = DeltaNetCall(
        *(None, None, None, *(tensor.data_ptr() for tensor in tensors)),
        num_key_heads=heads.num_keys,
        num_value_heads=heads.num_values,
        key_dim=heads.key_dim,
        value_dim=heads.value_dim,
        kernel=kernel,
        epsilon=norm.variance_epsilon,
        update_scale=1.0,
        is_bf16=weight.dtype == torch.bfloat16,
    )
    return call, tensors
