"""Mamba 2 layers: convolution, state space, gate and norm of all rows are one native call between two products."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from worker_svc.runner.cpu.fused import NotFusableError
from worker_svc.runner.cpu.native.kernels import DTYPES, LANES, Kernels
from worker_svc.runner.cpu.native.structs import StateSpaceCall
from worker_svc.runner.cpu.recurrent.native_layer import KERNELS, Mixer, NativeLayer
from worker_svc.runner.cpu.recurrent.side_by_side import SideBySide
from worker_svc.runner.recurrent.layers import RecurrentForward
from worker_svc.runner.recurrent.rows import StateRows

FAMILIES = ("BambaMixer", "FalconH1Mixer", "GraniteMoeHybridMambaLayer", "NemotronHMamba2Mixer")
"""Names of transformers' classes, which have the same parts, Falcon's multipliers and choice of norms aside."""
STATE_DIMS = tuple(LANES * count for count in (1, 2, 4, 8, 16))


def is_state_space(module: nn.Module) -> bool:
    """True for the layers that `NativeStateSpace` is made for."""
    return type(module).__name__ in FAMILIES and isinstance(module.forward, RecurrentForward)


class NativeStateSpace(NativeLayer):
    """A Mamba 2 layer.

    The least step that a family's config names bounds all steps here; transformers' code for one token leaves it out.
    """

    kind = "state_space"

    def __init__(self, layer: Any, kernels: Kernels) -> None:
        """Takes the place of `layer`; see `NativeLayer`. NotFusableError for shapes that the kernel does not take."""
        check_shapes(layer)
        call, tensors = make_call(layer)
        mixer = Mixer(call, layer.num_heads * layer.head_dim, tensors)
        self._num_channels = int(layer.conv1d.out_channels)
        self._in_scale = float(getattr(layer, "ssm_in_multiplier", 1.0))
        super().__init__(layer, kernels, SideBySide((layer.in_proj,), None), layer.out_proj, mixer)

    def run(self, hidden_states: torch.Tensor, rows: StateRows) -> torch.Tensor:
        """`[1, T, H]` of these rows."""
        if self._in_scale != 1.0:
            hidden_states = hidden_states * self._in_scale
        return super().run(hidden_states, rows)

    def mix(self, projected: torch.Tensor, rows: StateRows) -> torch.Tensor:
        """`[T, width]` for what the product ahead gives `[T, ...]`. Writes the rows' targets."""
        convolved = projected.new_empty(len(projected), self._num_channels)
        self._mixer.call.convolved = convolved.data_ptr()
        return super().mix(projected, rows)


def make_call(layer: Any) -> tuple[StateSpaceCall, list[torch.Tensor]]:
    """The call without what changes with each batch, and the tensors that it points to."""
    weight, bias, norm = layer.conv1d.weight.detach(), layer.conv1d.bias, layer.norm
    has_norm = hasattr(norm, "weight")
    tensors = [
        weight[:, 0].T,
        torch.zeros(len(weight)) if bias is None else bias.detach(),
        layer.A_log.detach().float().exp(),
        layer.dt_bias.detach(),
        layer.D.detach(),
        scales_of(layer),
        norm.weight.detach() if has_norm else None,
    ]
    kept = [None if tensor is None else tensor.float().contiguous() for tensor in tensors]
    call = StateSpaceCall(
        *(None, *(None if tensor is None else tensor.data_ptr() for tensor in kept)),
        num_heads=layer.num_heads,
        num_groups=layer.n_groups,
        head_dim=layer.head_dim,
        state_dim=layer.ssm_state_size,
        kernel=weight.shape[-1],
        norm_dim=normed_together(layer),
        epsilon=norm.variance_epsilon if has_norm else 0.0,
        least_step=layer.time_step_limit[0],
        norms_first=getattr(norm, "norm_before_gate", False),
        is_bf16=weight.dtype == torch.bfloat16,
    )
    return call, [tensor for tensor in kept if tensor is not None]


def scales_of(layer: Any) -> torch.Tensor | None:
    """`[width]` what each of the projected numbers is multiplied by; None: nothing."""
    scales: torch.Tensor | None = getattr(layer, "mup_vector", None)
    return None if scales is None else scales.detach().flatten()


def normed_together(layer: Any) -> int:
    """How many numbers are normed together; 0: there is no norm."""
    norm = layer.norm
    if not hasattr(norm, "weight"):
        return 0
    groups = getattr(norm, "n_groups", None)
    if groups is not None:
        return int(layer.intermediate_size // groups)
    return int(getattr(norm, "group_size", layer.intermediate_size))  # transformers 5.17 norms all at once


def check_shapes(layer: Any) -> None:
    """NotFusableError for what the kernel does not take."""
    weight, width, norm_dim = layer.conv1d.weight, layer.num_heads * layer.head_dim, normed_together(layer)
    if weight.shape[-1] not in KERNELS or layer.activation != "silu":
        raise NotFusableError(
            f"its convolution over {weight.shape[-1]} inputs, with {layer.activation} behind it, is none that the "
            f"kernel knows"
        )
    is_whole = width == layer.intermediate_size and not layer.num_heads % layer.n_groups
    if weight.dtype not in DTYPES or layer.ssm_state_size not in STATE_DIMS or not is_whole:
        raise NotFusableError("its heads are not those that the kernel takes")
    if width % LANES or norm_dim % LANES or (norm_dim and width % norm_dim):
        raise NotFusableError("its norm is none that the kernel takes")
    if layer.time_step_limit[1] != math.inf:
        raise NotFusableError(
            f"it bounds its steps by {layer.time_step_limit[1]}, which the kernel knows nothing of"
        )
