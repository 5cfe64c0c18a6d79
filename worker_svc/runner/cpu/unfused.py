"""Tells the log what of a model runs as transformers has it, and so more slowly than it might."""

from __future__ import annotations

import logging

from torch import nn
from transformers.pytorch_utils import Conv1D

from worker_svc.runner.attention.families import FAMILIES
from worker_svc.runner.cpu.fused import JoinedAttention
from worker_svc.runner.recurrent.layers import RecurrentForward

logger = logging.getLogger(__name__)


def tell_unfused(model: nn.Module) -> None:
    """One line for each kind of attention, and one for each kind of recurrent layers, that is not ours."""
    attention: dict[str, list[int]] = {}
    recurrent: dict[str, list[int]] = {}
    for module in model.modules():
        kind = type(module).__name__
        if isinstance(module.forward, RecurrentForward):
            recurrent.setdefault(kind, []).append(module.forward.layer_idx)
        elif is_plain_attention(module):
            attention.setdefault(kind, []).append(int(module.layer_idx))  # type: ignore[arg-type]
    for kind, indices in attention.items():
        reason = "which is none that the fused one is known to equal"
        if kind.removesuffix("Attention") in FAMILIES:
            reason = "for the reason told above"
        _tell("attention is not fused", indices, kind, reason)
    for kind, indices in recurrent.items():
        _tell("recurrent states are torch's work", indices, kind, "which no native kernel serves")


def tell_unpacked(model: nn.Module) -> None:
    """One line if linear layers are left whose weights lie as torch reads them."""
    names = [name for name, module in model.named_modules() if isinstance(module, nn.Linear | Conv1D)]
    if names:
        logger.info("%d linear layers are not packed, the first is %s", len(names), names[0])


def is_plain_attention(module: nn.Module) -> bool:
    """True for attention by transformers' own module."""
    is_attention = type(module).__name__.endswith("Attention") and hasattr(module, "layer_idx")
    return is_attention and not isinstance(module, JoinedAttention)


def _tell(what: str, indices: list[int], kind: str, reason: str) -> None:
    logger.info(
        "%s in %d layers, the first is %d: they have %s, %s", what, len(indices), indices[0], kind, reason
    )
