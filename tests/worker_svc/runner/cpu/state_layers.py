"""Recurrent layers with random weights, and rows of states for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from transformers import (
    BambaConfig,
    FalconH1Config,
    GraniteMoeHybridConfig,
    JambaConfig,
    KimiLinearConfig,
    Lfm2Config,
    Lfm2MoeConfig,
    NemotronHConfig,
    OlmoHybridConfig,
    Qwen3_5TextConfig,
    Qwen3NextConfig,
)
from transformers.models.bamba.modeling_bamba import BambaMixer
from transformers.models.falcon_h1.modeling_falcon_h1 import FalconH1Mixer, compute_mup_vector
from transformers.models.granitemoehybrid.modeling_granitemoehybrid import GraniteMoeHybridMambaLayer
from transformers.models.jamba.modeling_jamba import JambaMambaMixer
from transformers.models.kimi_linear.modeling_kimi_linear import KimiLinearDeltaAttention
from transformers.models.lfm2.modeling_lfm2 import Lfm2ShortConv
from transformers.models.lfm2_moe.modeling_lfm2_moe import Lfm2MoeShortConv
from transformers.models.nemotron_h.modeling_nemotron_h import NemotronHMamba2Mixer
from transformers.models.olmo_hybrid.modeling_olmo_hybrid import OlmoHybridGatedDeltaNet
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5GatedDeltaNet
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

from tools.make_random_model import fill_weights
from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.runner.cpu.recurrent.delta_net import NativeDeltaNet
from worker_svc.runner.cpu.recurrent.kimi_delta import NativeKimiDelta
from worker_svc.runner.cpu.recurrent.native_layer import NativeLayer
from worker_svc.runner.cpu.recurrent.selective_scan import NativeSelectiveScan
from worker_svc.runner.cpu.recurrent.short_convolution import NativeShortConvolution
from worker_svc.runner.cpu.recurrent.state_space import NativeStateSpace
from worker_svc.runner.recurrent.layers import serve_recurrent
from worker_svc.runner.recurrent.layout import StateLayout
from worker_svc.runner.recurrent.rows import StateRows
from worker_svc.runner.recurrent.store import StateStore

HIDDEN = 64


class Shape(NamedTuple):
    """A layer's shape. For state spaces: groups, heads, size of a state, size of a head; of short convolutions heads
    and their size make the channels; of Mamba layers half of them, with steps of the first number's rank."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int


DELTA_NETS: dict[str, tuple[Any, Any]] = {
    "qwen3.5": (Qwen3_5TextConfig, Qwen3_5GatedDeltaNet),
    "qwen3-next": (Qwen3NextConfig, Qwen3NextGatedDeltaNet),
    "olmo": (OlmoHybridConfig, OlmoHybridGatedDeltaNet),
}
STATE_SPACES: dict[str, tuple[Any, Any]] = {
    "bamba": (BambaConfig, BambaMixer),
    "granite": (GraniteMoeHybridConfig, GraniteMoeHybridMambaLayer),
    "nemotron": (NemotronHConfig, NemotronHMamba2Mixer),
    "falcon": (FalconH1Config, FalconH1Mixer),
    "falcon, normed behind the gate": (FalconH1Config, FalconH1Mixer),
    "falcon, normed ahead of the gate": (FalconH1Config, FalconH1Mixer),
}
CONVOLUTIONS: dict[str, tuple[Any, Any]] = {
    "lfm2": (Lfm2Config, Lfm2ShortConv),
    "lfm2-moe": (Lfm2MoeConfig, Lfm2MoeShortConv),
}
KIMI: dict[str, tuple[Any, Any]] = {"kimi": (KimiLinearConfig, KimiLinearDeltaAttention)}
SCANS: dict[str, tuple[Any, Any]] = {"jamba": (JambaConfig, JambaMambaMixer)}
LAYERS = DELTA_NETS | STATE_SPACES | CONVOLUTIONS | KIMI | SCANS
NATIVE: dict[str, Callable[[Any, Kernels], NativeLayer]] = {
    **dict.fromkeys(DELTA_NETS, NativeDeltaNet),
    **dict.fromkeys(STATE_SPACES, NativeStateSpace),
    **dict.fromkeys(CONVOLUTIONS, NativeShortConvolution),
    **dict.fromkeys(KIMI, NativeKimiDelta),
    **dict.fromkeys(SCANS, NativeSelectiveScan),
}
"""What takes the place of a family's layers."""


def make_config(family: str, shape: Shape) -> Any:
    """The config of a family with layers of this shape."""
    if family in DELTA_NETS:
        return DELTA_NETS[family][0](
            hidden_size=HIDDEN,
            num_hidden_layers=2,
            layer_types=["linear_attention", "full_attention"],
            linear_num_key_heads=shape.key_heads,
            linear_num_value_heads=shape.value_heads,
            linear_key_head_dim=shape.key_dim,
            linear_value_head_dim=shape.value_dim,
            linear_conv_kernel_dim=shape.kernel,
        )
    if family in KIMI:
        return KimiLinearConfig(
            hidden_size=HIDDEN,
            num_hidden_layers=2,
            layer_types=["linear_attention", "full_attention"],
            mlp_layer_types=["dense", "dense"],
            pad_token_id=0,
            linear_head_dim=shape.value_dim,
            linear_num_heads=shape.value_heads,
            linear_conv_kernel_dim=shape.kernel,
        )
    if family in SCANS:
        return JambaConfig(
            hidden_size=shape.value_heads * shape.value_dim,
            mamba_d_state=shape.key_dim,
            mamba_dt_rank=shape.key_heads,
            mamba_d_conv=shape.kernel,
            mamba_conv_bias=shape.kernel != 3,
        )
    if family in CONVOLUTIONS:
        return CONVOLUTIONS[family][0](
            hidden_size=shape.value_heads * shape.value_dim,
            num_hidden_layers=2,
            layer_types=["conv", "full_attention"],
            conv_L_cache=shape.kernel,
            conv_bias=shape.kernel == 4,
        )
    if family == "nemotron":
        return NemotronHConfig(
            hidden_size=HIDDEN,
            mamba_num_heads=shape.value_heads,
            mamba_head_dim=shape.value_dim,
            n_groups=shape.key_heads,
            ssm_state_size=shape.key_dim,
            conv_kernel=shape.kernel,
        )
    layers: dict[str, Any] = {"layer_types": ["mamba", "attention"]}
    if family == "bamba":
        layers = {"attn_layer_indices": [1]}
    if family.startswith("falcon"):
        layers = {
            "mamba_d_ssm": shape.value_heads * shape.value_dim,
            "mamba_rms_norm": "normed" in family,
            "mamba_norm_before_gate": "ahead" in family,
            "ssm_in_multiplier": 1.3,
            "ssm_multipliers": [0.7, 1.2, 0.6, 0.8, 1.4],
        }
    return STATE_SPACES[family][0](
        **layers,
        hidden_size=HIDDEN,
        num_hidden_layers=2,
        mamba_n_heads=shape.value_heads,
        mamba_d_head=shape.value_dim,
        mamba_n_groups=shape.key_heads,
        mamba_d_state=shape.key_dim,
        mamba_d_conv=shape.kernel,
        mamba_expand=shape.value_heads * shape.value_dim // HIDDEN,
    )


@torch.inference_mode()
def make_layer(family: str, shape: Shape, dtype: torch.dtype) -> Any:
    """A layer with random weights, served by transformers' code."""
    _, make = LAYERS[family]
    config = make_config(family, shape)
    layer = make(config, 0)
    if family.startswith("falcon"):
        layer.register_buffer("mup_vector", compute_mup_vector(config))
    fill_weights(nn.ModuleDict({"mixer": layer}), torch.Generator().manual_seed(1))
    layer = layer.to(dtype).eval()
    layer.dtype, layer.width = dtype, config.hidden_size
    serve_recurrent(nn.ModuleList([layer]))
    layer(random_hidden(layer, 1))
    return layer


def make_native(layer: Any, kernels: Kernels) -> NativeLayer:
    """What takes its place."""
    for family, (_, kind) in LAYERS.items():
        if isinstance(layer, kind):
            return NATIVE[family](layer, kernels)
    raise AssertionError(type(layer))


class RowByRow(nn.Module):
    """A module that meets one row at a time, as torch's products of a row depend on how many others there are."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[T, in]` to `[T, out]`."""
        return torch.cat([self._module(row) for row in x.split(1)]) if len(x) else self._module(x)


def with_products_by_rows(native: NativeLayer) -> NativeLayer:
    """The layer, whose products in the middle give a row the same whatever the others."""
    for name, module in list(native.named_children()):
        if name not in ("in_proj", "out_proj"):
            setattr(native, name, RowByRow(module))
    return native


def make_rows(layer: Any, lengths: list[int], sources: list[int], targets: list[int]) -> StateRows:
    """Rows of so many tokens on a store of random states, the same at each call."""
    torch.manual_seed(2)
    kept = layer.forward.kept
    store = StateStore(StateLayout({0: kept}), num_slots=1 + max(sources + targets) // 2, num_versions=2)
    for part in store.layers[0]:
        part.copy_(torch.randn(part.shape) * 0.5)
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    return StateRows(store, starts, np.array(sources, np.int32), np.array(targets, np.int32))


def random_hidden(layer: Any, tokens: int) -> torch.Tensor:
    """`[1, tokens, H]` for a layer."""
    generator = torch.Generator().manual_seed(3)
    return torch.randn(1, tokens, layer.width, generator=generator).to(layer.dtype)
