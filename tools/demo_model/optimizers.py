"""Which optimizer moves what, and how far."""

from __future__ import annotations

from typing import Any

import torch

from tools.demo_model.muon import Muon
from tools.demo_model.network import compute_loss
from tools.demo_model.settings import Settings

WARMUP_SHARE = 0.02

Optimizers = dict[str, torch.optim.Optimizer]


def build_optimizers(model: Any, settings: Settings) -> Optimizers:
    """Muon for the matrices inside the blocks, AdamW for the embedding and the norms."""
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if not any(p is matrix for matrix in matrices)]
    return {
        "muon": Muon(matrices, lr=settings.muon_lr),
        "adam": torch.optim.AdamW(others, lr=settings.adam_lr, betas=(0.9, 0.95), weight_decay=0.01),
    }


def learning_rate_scale(share: float) -> float:
    """Short warm-up, then a straight line to zero; share: part of the time budget that is spent."""
    return max(0.0, min(share / WARMUP_SHARE, (1 - share) / (1 - WARMUP_SHARE), 1.0)) + 1e-3


def set_learning_rates(optimizers: Optimizers, settings: Settings, share: float) -> None:
    peaks = {"muon": settings.muon_lr, "adam": settings.adam_lr}
    for name, optimizer in optimizers.items():
        for group in optimizer.param_groups:
            group["lr"] = peaks[name] * learning_rate_scale(share)


def take_step(model: Any, optimizers: Optimizers, rows: torch.Tensor) -> float:
    loss = compute_loss(model, rows)
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers.values():
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss.item()
