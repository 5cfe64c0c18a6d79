"""Mamba layers: the convolution of all rows is a native call, and behind two small products the scan is another."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from worker_svc.runner.cpu.fused import NotFusableError
from worker_svc.runner.cpu.native.kernels import LANES, Kernels
from worker_svc.runner.cpu.native.structs import SelectiveScanCall
from worker_svc.runner.cpu.recurrent.native_layer import Mixer, NativeLayer
from worker_svc.runner.cpu.recurrent.short_convolution import make_call as make_convolution
from worker_svc.runner.cpu.recurrent.side_by_side import SideBySide
from worker_svc.runner.recurrent.layers import RecurrentForward
from worker_svc.runner.recurrent.rows import StateRows

FAMILIES = ("JambaMambaMixer",)
"""Names of transformers' classes."""


def is_selective_scan(module: nn.Module) -> bool:
    """True for the layers that `NativeSelectiveScan` is made for."""
    return type(module).__name__ in FAMILIES and isinstance(module.forward, RecurrentForward)


class NativeSelectiveScan(NativeLayer):
    """A Mamba layer with norms of what its inputs choose: steps, and what the state takes and gives."""

    kind = "selective_scan"
    parts_proj: nn.Module
    step_norm: nn.Module
    step_proj: nn.Module

    def __init__(self, layer: Any, kernels: Kernels) -> None:
        """Takes the place of `layer`; see `NativeLayer`. NotFusableError for shapes that the kernel does not take."""
        check_shapes(layer)
        channels = int(layer.intermediate_size)
        self._convolution, weights = make_convolution(layer.conv1d, width=2 * channels, is_gated=False)
        self._scan, tensors = make_call(layer)
        self._rank = int(layer.time_step_rank)
        super().__init__(
            layer,
            kernels,
            SideBySide((layer.in_proj,), None),
            layer.out_proj,
            Mixer(self._scan, channels, [*weights, *tensors]),
            parts_proj=layer.x_proj,
            step_norm=layer.dt_layernorm,
            step_proj=without_bias(layer.dt_proj),
        )

    def mix(self, projected: torch.Tensor, rows: StateRows) -> torch.Tensor:
        """`[T, width]` for what the product ahead gives `[T, ...]`. Writes the rows' targets."""
        convolved = projected.new_empty(len(projected), self._scan.channels)
        self._convolution.projected, self._convolution.out = projected.data_ptr(), convolved.data_ptr()
        self.run_rows("convolution", self._convolution, rows)
        parts = self.parts_proj(convolved)
        steps = self.step_proj(self.step_norm(parts[:, : self._rank].contiguous()))
        normed = torch.empty(len(projected), 2 * LANES)
        call = self._scan
        call.convolved, call.parts, call.steps = convolved.data_ptr(), parts.data_ptr(), steps.data_ptr()
        call.normed = normed.data_ptr()
        return super().mix(projected, rows)


def make_call(layer: Any) -> tuple[SelectiveScanCall, list[torch.Tensor]]:
    """The call without what changes with each batch, and the tensors that it points to."""
    tensors = [
        layer.A_log.detach().float().exp(),
        layer.dt_proj.bias.detach().float(),
        layer.D.detach().float(),
        layer.b_layernorm.weight.detach().float(),
        layer.c_layernorm.weight.detach().float(),
    ]
    tensors = [tensor.contiguous() for tensor in tensors]
    call = SelectiveScanCall(
        *(None, None, None, None, *(tensor.data_ptr() for tensor in tensors)),
        channels=layer.intermediate_size,
        parts_width=layer.time_step_rank + 2 * LANES,
        in_epsilon=layer.b_layernorm.variance_epsilon,
        out_epsilon=layer.c_layernorm.variance_epsilon,
        is_bf16=layer.conv1d.weight.dtype == torch.bfloat16,
    )
    return call, tensors


def check_shapes(layer: Any) -> None:
    """NotFusableError for what the kernel does not take, the convolution aside."""
    if layer.activation != "silu":
        raise NotFusableError(f"{layer.activation} behind its convolution is none that the kernel knows")
    if layer.ssm_state_size != LANES or layer.intermediate_size % LANES:
        raise NotFusableError(
            f"{layer.intermediate_size} channels with states of {layer.ssm_state_size} numbers are none that the "
            f"kernel takes"
        )


def without_bias(linear: Any) -> nn.Module:
    """A linear layer of the same weight alone: the kernel adds the bias to what the product gives."""
    product = nn.Linear(linear.in_features, linear.out_features, bias=False, device="meta")
    product.weight = linear.weight
    return product
