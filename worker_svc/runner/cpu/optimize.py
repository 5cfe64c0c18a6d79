"""Swaps modules of a loaded model for faster ones, in place; the model's own code calls them as before."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.attention.latent import AbsorbedProjections, drop_expansion
from worker_svc.runner.cpu.decoder import FusedDecoder, can_be_one_call, is_decoder_layer
from worker_svc.runner.cpu.experts.fused_experts import FusedExperts
from worker_svc.runner.cpu.experts.kinds import is_experts
from worker_svc.runner.cpu.experts.row_weight import is_router, with_row_weight
from worker_svc.runner.cpu.fused import (
    FusedAttention,
    FusedMLP,
    FusedNorm,
    NotFusableError,
    is_attention,
    is_gated_mlp,
    is_rms_norm,
)
from worker_svc.runner.cpu.kept_linear import KeptLinear
from worker_svc.runner.cpu.latent import NativeProjections
from worker_svc.runner.cpu.native.kernels import DTYPES, Kernels
from worker_svc.runner.cpu.native_linear import NativeLinear, uses_dot
from worker_svc.runner.cpu.packed_linear import PackingError, is_released, pack
from worker_svc.runner.cpu.recurrent.delta_net import NativeDeltaNet, is_delta_net
from worker_svc.runner.cpu.recurrent.kimi_delta import NativeKimiDelta, is_kimi_delta
from worker_svc.runner.cpu.recurrent.selective_scan import NativeSelectiveScan, is_selective_scan
from worker_svc.runner.cpu.recurrent.short_convolution import NativeShortConvolution, is_short_convolution
from worker_svc.runner.cpu.recurrent.state_space import NativeStateSpace, is_state_space
from worker_svc.runner.cpu.unfused import tell_unfused, tell_unpacked
from worker_svc.runner.model.quantised_experts import QuantisedExperts
from worker_svc.runner.model.quantised_linear import QuantisedLinear
from worker_svc.runner.split.communicator import Communicator
from worker_svc.runner.split.elsewhere import Elsewhere, Entry
from worker_svc.runner.split.over_gloo import GlooCommunicator
from worker_svc.runner.split.over_memory import MemoryCommunicator
from worker_svc.weights.heap import heap_trim

logger = logging.getLogger(__name__)

Swap = Callable[[nn.Module], nn.Module | None]


@torch.inference_mode()
def optimize(model: nn.Module, dtype: torch.dtype, ranks: Communicator | None = None) -> None:
    """Swaps what is known in a model on the CPU, and drops the weights that are then not needed any more.

    Every swapped part but attention was compared with the original; the probe compares the whole. ranks: those
    that have the other parts of it; over gloo no call computes all layers.
    """
    drop_expansion(model)
    if dtype not in DTYPES:
        return
    kernels = native_kernels()
    if kernels is None:
        swaps: list[Swap] = [swap_linear]
    elif uses_dot(kernels, dtype):
        swaps = [
            *([] if isinstance(ranks, GlooCommunicator) else [decoder_swap(kernels, ranks)]),
            *fused_swaps(kernels),
            kept_swap(kernels),
            latent_swap(kernels),
            native_linear_swap(kernels),
        ]
    else:
        swaps = [*fused_swaps(kernels), kept_swap(kernels), swap_linear]
    for swap in swaps:
        swap_children(model, swap)
    tell_unfused(model)
    tell_unpacked(model)
    gc.collect()
    heap_trim.now()


@torch.inference_mode()
def fuse_kept_experts(model: nn.Module) -> None:
    """Swaps experts of whole numbers for the kernel's, ahead of anything that runs the model: their definition makes
    the numbers of each matrix anew, which takes a large one minutes for a few tokens. It is compared with the kernel
    on two experts of each layer."""
    kernels = native_kernels()
    if kernels is not None:
        swap_children(
            model,
            lambda module: FusedExperts(module, kernels) if isinstance(module, QuantisedExperts) else None,
        )


def decoder_swap(kernels: Kernels, ranks: Communicator | None = None) -> Swap:
    """One module in the place of all layers, if they are of the kind that it knows."""
    assert ranks is None or isinstance(ranks, MemoryCommunicator), "others cannot be heard within a call"

    def swap(module: nn.Module) -> nn.Module | None:
        if not isinstance(module, nn.ModuleList):
            return None
        numbers = [number for number, layer in enumerate(module) if not isinstance(layer, Elsewhere)]
        layers = [module[number] for number in numbers]
        if not layers or not is_decoder_layer(layers[0]):
            return None
        # All ranks or none: what they look at of the last layer differs.
        if ranks is not None and not ranks.agree(can_be_one_call(layers)):
            raise NotFusableError("a rank's part of the layers is not one that the kernel knows")
        entry = [module[0]] if isinstance(module[0], Entry) else []
        return nn.ModuleList([*entry, FusedDecoder(layers, kernels, ranks, numbers[0])])

    return swap


def kept_swap(kernels: Kernels) -> Swap:
    """A quantised layer with our own kernel."""
    return lambda module: KeptLinear([module], kernels) if isinstance(module, QuantisedLinear) else None


def latent_swap(kernels: Kernels) -> Swap:
    """A layer's absorbed projections with our own kernel."""
    return lambda module: NativeProjections(module, kernels) if type(module) is AbsorbedProjections else None


def native_linear_swap(kernels: Kernels) -> Swap:
    """A linear layer with our own kernel."""
    return lambda module: NativeLinear([module], kernels) if type(module) in (nn.Linear, Conv1D) else None


def fused_swaps(kernels: Kernels) -> list[Swap]:
    """What takes several modules at once comes first."""
    return [
        lambda module: FusedAttention(module, kernels) if is_attention(module) else None,
        lambda module: FusedMLP(module, kernels) if is_gated_mlp(module) else None,
        lambda module: NativeDeltaNet(module, kernels) if is_delta_net(module) else None,
        lambda module: NativeKimiDelta(module, kernels) if is_kimi_delta(module) else None,
        lambda module: NativeSelectiveScan(module, kernels) if is_selective_scan(module) else None,
        lambda module: NativeShortConvolution(module, kernels) if is_short_convolution(module) else None,
        lambda module: NativeStateSpace(module, kernels) if is_state_space(module) else None,
        lambda module: FusedExperts(module, kernels) if is_any_experts(module) else None,
        lambda module: with_row_weight(module, kernels) if is_router(module) else None,
        lambda module: FusedNorm(module, kernels) if is_rms_norm(module) else None,
    ]


def is_any_experts(module: nn.Module) -> bool:
    """True for experts as transformers has them, and for quantised ones."""
    return isinstance(module, QuantisedExperts) or is_experts(module)


def swap_linear(module: nn.Module) -> nn.Module | None:
    """A linear layer with reordered weights, or GPT-2's transposed one."""
    return pack(module) if type(module) in (nn.Linear, Conv1D) else None


def is_broken(module: nn.Module) -> bool:
    """True if a weight in it was released: the module cannot be called any more, and is not to be left."""
    return any(map(is_released, module.modules()))


def swap_children(module: nn.Module, swap: Swap) -> None:
    """Swaps all modules below `module` for which there is a swap; one that cannot be swapped is left.

    NotFusableError or PackingError of one that is broken by the attempt.
    """
    for name, child in list(module.named_children()):
        try:
            replacement = swap(child)
        except (NotFusableError, PackingError) as error:
            if is_broken(child):
                raise
            logger.warning("%s is not accelerated: %s.", type(child).__name__, error)
            replacement = None
        if replacement is None:
            swap_children(child, swap)
        elif isinstance(module, nn.ModuleList | nn.Sequential):
            module[int(name)] = replacement
        else:
            setattr(module, name, replacement)
