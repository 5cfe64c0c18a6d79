"""Sums over ranks behind those modules of a model that each rank has a part of, and a head that is in parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from worker_svc.runner.cpu.decoder import FusedDecoder
from worker_svc.runner.model.quantised_experts import QuantisedExperts
from worker_svc.runner.model.quantised_linear import QuantisedLinear
from worker_svc.runner.split import shares
from worker_svc.runner.split.communicator import Communicator
from worker_svc.runner.split.plan import SplitPlan
from worker_svc.weights.held import hold

ATTENTION = "self_attn"
WHOLE = ("linear_attn", "conv", "mamba")


def summed_modules(module: nn.Module, plan: SplitPlan) -> list[str]:
    """Names of the modules whose outputs are sums over ranks: attention and MLPs of all layers, where they are cut."""
    names = []
    for name, child in module.named_modules():
        if name.rpartition(".")[2] != "layers" or not isinstance(child, nn.ModuleList):
            continue
        for number, layer in enumerate(child):
            parts = dict(layer.named_children())
            names += [f"{name}.{number}.{part}" for part in parts if _is_cut(part, parts[part], plan)]
    return names


def _is_cut(name: str, part: nn.Module, plan: SplitPlan) -> bool:
    if name == ATTENTION:
        return plan.heads is not None
    is_other = name in WHOLE or name.endswith(("norm", "layernorm")) or "router" in name
    if is_other or isinstance(part, nn.Linear | QuantisedLinear):
        return False
    is_kept = any(isinstance(module, QuantisedLinear | QuantisedExperts) for module in part.modules())
    return is_kept or any(len(weight.shape) > 1 for weight in part.parameters())


class Sums:
    """Lets the outputs of modules be summed over the ranks."""

    def __init__(self, module: nn.Module, plan: SplitPlan, ranks: Communicator) -> None:
        self._module, self._ranks = module, ranks
        self._names = summed_modules(module, plan)
        self._is_paused = False

    def attach(self) -> None:
        """Once more where modules were swapped for others."""
        for name in self._names:
            layers = self._module.get_submodule(name.rsplit(".", 2)[0])
            if isinstance(layers[-1], FusedDecoder):  # type: ignore[index]
                return  # it sums by itself
            part: Any = self._module.get_submodule(name)
            if getattr(part, "is_summed", False):
                continue
            part.is_summed = True
            part.register_forward_hook(self._sum)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Meanwhile modules give their own part."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False

    def _sum(self, _module: nn.Module, _inputs: object, output: Any) -> Any:
        if self._is_paused:
            return output
        if isinstance(output, tuple):
            return (self._ranks.sum(output[0]), *output[1:])
        return self._ranks.sum(output)


class SplitHead(nn.Module):
    """The rows of a head that a rank has. Rank 0 gets the logits of all, others numbers that mean nothing."""

    def __init__(self, head: Any, plan: SplitPlan, ranks: Communicator) -> None:
        super().__init__()
        num_rows = head.out_features
        parts = [shares.even(num_rows, rank, plan.size) for rank in range(plan.size)]
        mine, self._ranks = parts[plan.rank], ranks
        self._sizes = [part.size for part in parts]
        rows = slice(mine.start, mine.end)
        if isinstance(head, QuantisedLinear):
            bias = None if head.bias is None else head.bias[rows]
            self.part: nn.Module = QuantisedLinear(hold(head.held.rows(rows)), bias, head.dtype)
            return
        linear = nn.Linear(head.in_features, mine.size, bias=head.bias is not None, device="meta")
        for name, whole in head.named_parameters():
            setattr(linear, name, nn.Parameter(whole.detach()[rows].clone(), requires_grad=False))
        self.part = linear

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """`[..., H]` to `[..., V]`."""
        return self._ranks.join(self.part(states), self._sizes)
