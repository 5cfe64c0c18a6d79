"""Which experts the kernel knows, and how they are told to it."""

from __future__ import annotations

from typing import Any

from torch import nn

from worker_svc.runner.cpu.fused import ACTIVATIONS, NotFusableError
from worker_svc.runner.cpu.native.kernels import LANES, Activation
from worker_svc.runner.cpu.native.structs import ExpertsCall

PARAMETERS = ("gate_up_proj", "down_proj")


def is_experts(module: nn.Module) -> bool:
    """True for experts as transformers has them: two parameters for all of a layer."""
    weights = [getattr(module, name, None) for name in PARAMETERS]
    is_gated = getattr(module, "has_gate", False) and not getattr(module, "has_post_expert_norm", False)
    return is_gated and all(isinstance(weight, nn.Parameter) and weight.dim() == 3 for weight in weights)


def can_fuse(experts: Any) -> bool:
    """True for experts whose kind the kernel knows; what they compute is compared when they are swapped."""
    try:
        make_call(experts)
        width_of(experts)
    except NotFusableError:
        return False
    return True


def make_call(experts: Any) -> ExpertsCall:
    """The call with the activation alone. NotFusableError for one that the kernel does not know."""
    if hasattr(experts, "alpha") and hasattr(experts, "limit"):
        return ExpertsCall(alpha=experts.alpha, limit=experts.limit, activation=Activation.CLAMPED)
    activation = ACTIVATIONS.get(type(getattr(experts, "act_fn", None)).__name__)
    if activation is None:
        raise NotFusableError("the experts' activation is not one that the kernel knows")
    return ExpertsCall(activation=activation)


def width_of(experts: Any) -> int:
    """Gates of an expert. NotFusableError for a number of them that the kernel does not take."""
    width = int(experts.gate_up_proj.shape[2 if experts.is_transposed else 1]) // 2
    if width % LANES:
        raise NotFusableError(f"the width of an expert is no multiple of {LANES}")
    return width
