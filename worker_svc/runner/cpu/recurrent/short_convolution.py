"""Short convolutions: both gates and the convolution of all rows are one native call between two products."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from worker_svc.runner.cpu.fused import NotFusableError
from worker_svc.runner.cpu.native.kernels import DTYPES, Kernels
from worker_svc.runner.cpu.native.structs import ConvolutionCall
from worker_svc.runner.cpu.recurrent.native_layer import KERNELS, Mixer, NativeLayer
from worker_svc.runner.cpu.recurrent.side_by_side import SideBySide
from worker_svc.runner.recurrent.layers import RecurrentForward

FAMILIES = ("Lfm2ShortConv", "Lfm2MoeShortConv")
"""Names of transformers' classes, which have the same parts."""


def is_short_convolution(module: nn.Module) -> bool:
    """True for the layers that `NativeShortConvolution` is made for."""
    return type(module).__name__ in FAMILIES and isinstance(module.forward, RecurrentForward)


class NativeShortConvolution(NativeLayer):
    """A short convolution between two gates."""

    kind = "convolution"

    def __init__(self, layer: Any, kernels: Kernels) -> None:
        """Takes the place of `layer`; see `NativeLayer`. NotFusableError for shapes that the kernel does not take."""
        call, tensors = make_call(layer.conv, width=3 * layer.conv.out_channels, is_gated=True)
        mixer = Mixer(call, layer.conv.out_channels, tensors)
        super().__init__(layer, kernels, SideBySide((layer.in_proj,), None), layer.out_proj, mixer)


def make_call(
    convolution: nn.Conv1d, *, width: int, is_gated: bool
) -> tuple[ConvolutionCall, list[torch.Tensor]]:
    """The call without what changes with each batch, and the tensors that it points to. `width`: numbers that the
    product ahead gives for a token. NotFusableError for what the kernel does not take."""
    weight, bias = convolution.weight.detach(), convolution.bias
    kernel = weight.shape[-1]
    if kernel not in KERNELS or weight.dtype not in DTYPES:
        raise NotFusableError(f"its convolution over {kernel} inputs is none that the kernel knows")
    tensors = [weight[:, 0].T.float().contiguous()]
    if bias is not None:
        tensors.append(bias.detach().float())
    call = ConvolutionCall(
        None,
        tensors[0].data_ptr(),
        None if bias is None else tensors[1].data_ptr(),
        channels=len(weight),
        width=width,
        kernel=kernel,
        is_gated=is_gated,
        is_bf16=weight.dtype == torch.bfloat16,
    )
    return call, tensors
