"""The recurrent layers of each family, with Triton's kernels between their products."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from worker_svc.runner.cpu.fused import NotFusableError
from worker_svc.runner.cpu.recurrent.delta_net import FAMILIES as DELTA_NETS
from worker_svc.runner.recurrent.layers import RecurrentForward
from worker_svc.runner.recurrent.rows import DecodeStates, StateRows
from worker_svc.runner.triton.joined_linear import JoinedLinear
from worker_svc.runner.triton.states.convolution import convolve
from worker_svc.runner.triton.states.delta_rule import Decay, apply_delta_rule
from worker_svc.runner.triton.states.layer import TritonLayer
from worker_svc.runner.triton.states.state_space import Space, move_space, scan_selectively

Rows = StateRows | DecodeStates
Stored = tuple[torch.Tensor, ...]


class TritonDeltaNet(TritonLayer):
    """A gated delta net of Qwen or OLMo."""

    kind = "delta net"

    def __init__(self, layer: Any) -> None:
        super().__init__(layer)
        check_activation(layer)
        parts = DELTA_NETS[type(layer).__name__](layer)
        self.in_proj = JoinedLinear(*parts.inputs, order=parts.inputs.order)
        self.conv1d, self.norm, self.out_proj = layer.conv1d, parts.norm, parts.out
        self._decay = Decay(layer.A_log.detach(), layer.dt_bias.detach())
        self._update_scale = parts.update_scale
        keys, values = layer.num_k_heads * layer.head_k_dim, layer.num_v_heads * layer.head_v_dim
        self._mixed_sizes = [keys, keys, values]
        self._sizes = [2 * keys + values, values, layer.num_v_heads, layer.num_v_heads]

    def mix(self, hidden: torch.Tensor, stored: Stored, rows: Rows) -> torch.Tensor:
        """As `TritonLayer.mix`."""
        mixed, gates, updates, decays = torch.split(self.in_proj(hidden), self._sizes, dim=-1)
        mixed = convolve(mixed, self.conv1d, stored[0], rows.columns)
        query, key, value = torch.split(mixed, self._mixed_sizes, dim=-1)
        out = apply_delta_rule(
            (query, key, value),
            decays,
            updates,
            self._decay,
            stored[1],
            rows.columns,
            update_scale=self._update_scale,
        )
        normed = self.norm(out.flatten(0, 1), gates.reshape(-1, out.shape[-1]))
        return self.out_proj(normed.view(len(hidden), -1))  # type: ignore[no-any-return]


class TritonKimiDelta(TritonLayer):
    """Kimi Delta Attention: each channel of a head's keys has a decay of its own."""

    kind = "Kimi delta attention"

    def __init__(self, layer: Any) -> None:
        super().__init__(layer)
        check_activation(layer)
        gate = layer.forget_gate
        self.qkv_proj = JoinedLinear(layer.q_proj, layer.k_proj, layer.v_proj)
        self.narrow_proj = JoinedLinear(layer.b_proj, gate.f_a_proj, layer.g_a_proj)
        self.decay_proj, self.gate_proj = gate.f_b_proj, layer.g_b_proj
        self.conv1d, self.norm, self.out_proj = layer.conv1d, layer.o_norm, layer.o_proj
        self._decay = Decay(gate.A_log.detach().flatten(), gate.dt_bias.detach())
        self._sizes = [layer.num_heads, layer.head_dim, layer.head_dim]

    def mix(self, hidden: torch.Tensor, stored: Stored, rows: Rows) -> torch.Tensor:
        """As `TritonLayer.mix`."""
        updates, decays, gates = torch.split(self.narrow_proj(hidden), self._sizes, dim=-1)
        mixed = convolve(self.qkv_proj(hidden), self.conv1d, stored[0], rows.columns)
        query, key, value = mixed.chunk(3, dim=-1)
        out = apply_delta_rule(
            (query, key, value), self.decay_proj(decays), updates, self._decay, stored[1], rows.columns
        )
        normed = self.norm(out, self.gate_proj(gates).view(out.shape))
        return self.out_proj(normed.view(len(hidden), -1))  # type: ignore[no-any-return]


class TritonStateSpace(TritonLayer):
    """A Mamba 2 layer of Granite, Bamba or Nemotron-H."""

    kind = "state space"

    def __init__(self, layer: Any) -> None:
        super().__init__(layer)
        check_activation(layer)
        self.in_proj, self.conv1d, self.norm = layer.in_proj, layer.conv1d, layer.norm
        self.out_proj = layer.out_proj
        limits = (float(layer.time_step_limit[0]), float(layer.time_step_limit[1]))
        self._space = Space(layer.A_log.detach(), layer.dt_bias.detach(), layer.D.detach(), limits)
        width, shared = layer.num_heads * layer.head_dim, layer.n_groups * layer.ssm_state_size
        self._mixed_sizes = [width, shared, shared]
        self._sizes = [width, width + 2 * shared, layer.num_heads]

    def mix(self, hidden: torch.Tensor, stored: Stored, rows: Rows) -> torch.Tensor:
        """As `TritonLayer.mix`."""
        gates, mixed, steps = torch.split(self.in_proj(hidden), self._sizes, dim=-1)
        mixed = convolve(mixed, self.conv1d, stored[0], rows.columns)
        x, inward, outward = torch.split(mixed, self._mixed_sizes, dim=-1)
        out = move_space(x, inward, outward, steps, self._space, stored[1], rows.columns)
        return self.out_proj(self.norm(out, gates))  # type: ignore[no-any-return]


class TritonSelectiveScan(TritonLayer):
    """A Mamba 1 layer of Jamba."""

    kind = "selective scan"

    def __init__(self, layer: Any) -> None:
        super().__init__(layer)
        check_activation(layer)
        self.in_proj, self.conv1d, self.x_proj = layer.in_proj, layer.conv1d, layer.x_proj
        self.dt_proj, self.out_proj = layer.dt_proj, layer.out_proj
        self.dt_layernorm, self.b_layernorm = layer.dt_layernorm, layer.b_layernorm
        self.c_layernorm = layer.c_layernorm
        self._space = Space(layer.A_log.detach(), layer.dt_proj.bias.detach(), layer.D.detach())
        self._sizes = [layer.time_step_rank, layer.ssm_state_size, layer.ssm_state_size]

    def mix(self, hidden: torch.Tensor, stored: Stored, rows: Rows) -> torch.Tensor:
        """As `TritonLayer.mix`."""
        mixed, gates = self.in_proj(hidden).chunk(2, dim=-1)
        mixed = convolve(mixed, self.conv1d, stored[0], rows.columns)
        steps, inward, outward = torch.split(self.x_proj(mixed), self._sizes, dim=-1)
        steps = F.linear(self.dt_layernorm(steps), self.dt_proj.weight)
        inward, outward = self.b_layernorm(inward), self.c_layernorm(outward)
        out = scan_selectively(mixed, inward, outward, steps, self._space, stored[1], rows.columns)
        return self.out_proj(out * F.silu(gates))  # type: ignore[no-any-return]


class TritonShortConv(TritonLayer):
    """A gated short convolution of LFM2."""

    kind = "short convolution"

    def __init__(self, layer: Any) -> None:
        super().__init__(layer)
        self.in_proj, self.conv, self.out_proj = layer.in_proj, layer.conv, layer.out_proj

    def mix(self, hidden: torch.Tensor, stored: Stored, rows: Rows) -> torch.Tensor:
        """As `TritonLayer.mix`."""
        before, behind, x = self.in_proj(hidden).chunk(3, dim=-1)
        mixed = convolve(before * x, self.conv, stored[0], rows.columns, has_silu=False)
        return self.out_proj(behind * mixed)  # type: ignore[no-any-return]


LAYERS: dict[str, type[TritonLayer]] = {
    **dict.fromkeys(DELTA_NETS, TritonDeltaNet),
    "KimiLinearDeltaAttention": TritonKimiDelta,
    **dict.fromkeys(("BambaMixer", "GraniteMoeHybridMambaLayer", "NemotronHMamba2Mixer"), TritonStateSpace),
    "JambaMambaMixer": TritonSelectiveScan,
    **dict.fromkeys(("Lfm2ShortConv", "Lfm2MoeShortConv"), TritonShortConv),
}
"""By the names of transformers' classes."""


def check_activation(layer: Any) -> None:
    """NotFusableError where something else than silu is behind the convolution."""
    if layer.activation != "silu":
        raise NotFusableError(f"{layer.activation} is behind its convolution, which the kernel does not know")


def recurrent_layer(module: nn.Module) -> TritonLayer | None:
    """What takes the place of a recurrent layer; None: it is none, or one of a family that has no kernels.
    NotFusableError if it gives other results."""
    made = LAYERS.get(type(module).__name__)
    if made is None or not isinstance(module.forward, RecurrentForward):
        return None
    layer = made(module)
    layer.check()
    return layer
