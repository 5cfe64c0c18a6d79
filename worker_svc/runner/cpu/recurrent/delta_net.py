"""Gated delta nets: convolution, rule, norm and gate of all rows are one native call between two products."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from worker_svc.core.requests.state_versions import NOTHING
from worker_svc.runner.attention import attention
from worker_svc.runner.cpu.fused import TOLERANCES, NotFusableError
from worker_svc.runner.cpu.native.kernels import DTYPES, LANES, Kernels
from worker_svc.runner.cpu.native.structs import DeltaNetCall
from worker_svc.runner.cpu.packed_linear import PackingError, relative_error
from worker_svc.runner.cpu.recurrent.side_by_side import SideBySide, one_product
from worker_svc.runner.recurrent.layers import RecurrentForward
from worker_svc.runner.recurrent.layout import LayerState, StateLayout
from worker_svc.runner.recurrent.rows import StateRows
from worker_svc.runner.recurrent.store import StateStore

logger = logging.getLogger(__name__)

KERNELS = (2, 3, 4)
"""Lengths of convolutions that the kernel takes."""
CHECKED_LENGTHS = (1, 5)
"""Tokens of the rows that are compared: one that goes on from a state, and others that begin."""


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


class NativeDeltaNet(nn.Module):
    """A gated delta net. What a token gives does not depend on the other rows, nor on where its sequence was cut."""

    def __init__(self, layer: Any, kernels: Kernels) -> None:
        """Takes the place of `layer`, a delta net that was served by `RecurrentForward`. NotFusableError if it is not
        as the kernel takes it."""
        super().__init__()
        served: RecurrentForward = layer.forward
        self.layer_idx = served.layer_idx
        self._kernels, self._dtype = kernels, layer.conv1d.weight.dtype
        parts = FAMILIES[type(layer).__name__](layer)
        self._call, self._weights = make_call(layer, parts)
        self._width = layer.num_v_heads * layer.head_v_dim
        self.in_proj: nn.Module = parts.inputs
        self.out_proj = parts.out
        assert served.kept is not None, "the model has run"
        compare(served, self, served.kept, int(layer.hidden_size))
        try:
            self.in_proj = one_product(parts.inputs, kernels)
        except PackingError as error:
            logger.info("products of layer %d are not joined: %s", self.layer_idx, error)

    def forward(self, hidden_states: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        """`[1, T, H]` of the flattened batch; the same. Each row goes on from its source and leaves its state in its
        target."""
        batch = attention.current()
        assert batch.states is not None, "the model has recurrent layers"
        batch.layers_called.add(self.layer_idx)
        return batch.states.advance(self.layer_idx, self.run, hidden_states)

    def run(self, hidden_states: torch.Tensor, rows: StateRows) -> torch.Tensor:
        """`[1, T, H]` of these rows."""
        out: torch.Tensor = self.out_proj(self.mix(self.in_proj(hidden_states[0]), rows)[None])
        return out

    def mix(self, projected: torch.Tensor, rows: StateRows) -> torch.Tensor:
        """`[T, value heads * value dim]` for what the products ahead give `[T, ...]`. Writes the rows' targets."""
        out = projected.new_empty(len(projected), self._width)
        call, stored = self._call, rows.store.layers[self.layer_idx]
        call.projected, call.out = projected.data_ptr(), out.data_ptr()
        call.inputs, call.states = (part.data_ptr() for part in stored)
        for run in rows.runs:
            columns = [np.ascontiguousarray(each) for each in run]
            call.query_starts, call.sources, call.targets = (column.ctypes.data for column in columns)
            call.num_rows = len(columns[1])
            self._kernels.run_delta_net(call)
        rows.keep_ends(stored)
        return out


def make_call(layer: Any, parts: Parts) -> tuple[DeltaNetCall, list[torch.Tensor]]:
    """The call without what changes with each batch, and the tensors that it points to. NotFusableError for shapes that
    the kernel does not take."""
    weight, norm = layer.conv1d.weight.detach(), parts.norm
    kernel = weight.shape[-1]
    if kernel not in KERNELS or layer.conv1d.bias is not None:
        raise NotFusableError(f"its convolution over {kernel} inputs is none that the kernel knows")
    if weight.dtype not in DTYPES or layer.head_v_dim % LANES or layer.num_v_heads % layer.num_k_heads:
        raise NotFusableError("its heads are not those that the kernel takes")
    tensors = [
        weight[:, 0].T.float(),
        layer.A_log.detach().float().exp(),
        layer.dt_bias.detach().float(),
        norm.weight.detach().float(),
    ]
    tensors = [tensor.contiguous() for tensor in tensors]
    pointers = (tensor.data_ptr() for tensor in tensors)
    call = DeltaNetCall(
        *(None, *pointers),
        num_key_heads=layer.num_k_heads,
        num_value_heads=layer.num_v_heads,
        key_dim=layer.head_k_dim,
        value_dim=layer.head_v_dim,
        kernel=kernel,
        epsilon=norm.variance_epsilon,
        update_scale=parts.update_scale,
        is_bf16=weight.dtype == torch.bfloat16,
    )
    return call, tensors


def compare(served: RecurrentForward, ours: NativeDeltaNet, kept: LayerState, hidden_size: int) -> None:
    """NotFusableError if outputs or states differ by more than rounding, in a row that goes on or one that begins."""
    generator = torch.Generator().manual_seed(hidden_size)
    dtype = kept.conv.dtype
    hidden = torch.randn(1, sum(CHECKED_LENGTHS), hidden_size, generator=generator).to(dtype)
    starts = np.cumsum((0, *CHECKED_LENGTHS)).astype(np.int32)
    stores = [
        StateStore(StateLayout({served.layer_idx: kept}), num_slots=2, num_versions=2) for _ in range(2)
    ]
    parts = zip(*(store.layers[served.layer_idx] for store in stores), strict=True)
    for one, other in parts:
        one.copy_(torch.randn(one.shape, generator=generator) * 0.3)
        other.copy_(one)
    rows = [
        StateRows(store, starts, np.array([0, NOTHING], np.int32), np.array([1, 3], np.int32))
        for store in stores
    ]
    results = zip(
        (served.run(hidden, rows[0]), *stores[0].layers[served.layer_idx]),
        (ours.run(hidden, rows[1]), *stores[1].layers[served.layer_idx]),
        strict=True,
    )
    for expected, actual in results:
        if not relative_error(actual, expected) <= 2 * TOLERANCES[dtype]:
            raise NotFusableError("the native delta net gives other results")
