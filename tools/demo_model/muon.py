"""An optimizer whose updates are orthogonal."""

from __future__ import annotations

import math
from typing import Any

import torch


def orthogonalise(matrices: torch.Tensor) -> torch.Tensor:
    """Nearest semi-orthogonal matrices, roughly, by Newton-Schulz steps; matrices: [count, rows, columns]."""
    wide = matrices.mT if matrices.shape[1] > matrices.shape[2] else matrices
    x: torch.Tensor = wide / (wide.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if wide is not matrices else x


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalised (Jordan 2024), scaled to the size of an AdamW update.

    torch.optim.Muon computes in bfloat16 and one matrix at a time, which costs a CPU three times as much.
    """

    def __init__(self, parameters: list[torch.nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": 0.95, "weight_decay": 0.1})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[torch.Tensor]] = {}
            for parameter in group["params"]:
                by_shape.setdefault(parameter.shape, []).append(parameter)
            for parameters in by_shape.values():
                self.update_stack(parameters, group)

    def update_stack(self, parameters: list[torch.Tensor], group: dict[str, Any]) -> None:
        updates = torch.stack([self.blend_momentum(parameter, group["momentum"]) for parameter in parameters])
        scale = 0.2 * math.sqrt(max(parameters[0].shape))
        for parameter, update in zip(parameters, orthogonalise(updates), strict=True):
            parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"] * scale)

    def blend_momentum(self, parameter: torch.Tensor, momentum: float) -> torch.Tensor:
        """Nesterov's look-ahead of the running mean of gradients."""
        assert parameter.grad is not None
        mean = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
        mean.lerp_(parameter.grad, 1 - momentum)
        return parameter.grad.lerp(mean, momentum)
