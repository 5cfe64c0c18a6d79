"""Experts divided by their numbers: each rank has some of them whole (RK16)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.quantised_experts import QuantisedExperts
from worker_svc.runner.split import shares
from worker_svc.runner.split.shares import Share
from worker_svc.weights.source import WeightSource
from worker_svc.weights.stack import MatrixStack
from worker_svc.weights.weight import Stored, Weight

EXPERTS = "experts"
NUMBERED = re.compile(r"(.*\bexperts\.)(\d+)(\..*)")
STACKED = re.compile(r".*\bexperts\.[a-z_]+(?:\.weight)?$")
Shapes = Mapping[str, Mapping[str, tuple[int, ...]]]
"""By the name of a layer's experts, the shape of each parameter of the whole model's."""


def shapes_of(module: nn.Module) -> Shapes:
    """The experts of a model of shapes."""
    return {
        name: {own: tuple(weight.shape) for own, weight in part.named_parameters(recurse=False)}
        for name, part in module.named_modules()
        if name.rpartition(".")[2] == EXPERTS and hasattr(part, "num_experts")
    }


def share_of(shapes: Shapes, rank: int, size: int) -> Share:
    """The experts of a rank. ModelLoadError where there are none, or fewer than ranks."""
    counts = {shape[0] for parts in shapes.values() for shape in parts.values()}
    if not counts:
        raise ModelLoadError("expert_parallel: the model has no experts.")
    if len(counts) > 1 or min(counts) < size:
        raise ModelLoadError(f"expert_parallel: {sorted(counts)} experts cannot be divided by {size}.")
    return shares.even(counts.pop(), rank, size)


def with_own(model_class: Any, shapes: Shapes, share: Share) -> Any:
    """The class of a model that has a rank's own experts alone, each as wide as in the whole one."""

    def build(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        model_class.__init__(self, config, *args, **kwargs)
        for name, parts in shapes.items():
            experts = self.get_submodule(name)
            experts.num_experts = share.size
            for own, shape in parts.items():
                old = getattr(experts, own)
                new = torch.empty((share.size, *shape[1:]), dtype=old.dtype, device=old.device)
                setattr(experts, own, nn.Parameter(new, requires_grad=False))

    return type(
        model_class.__name__, (model_class,), {"__init__": build, "__module__": model_class.__module__}
    )


def own_source(source: WeightSource, share: Share) -> WeightSource:
    """The weights of a rank's own experts, numbered from 0, and all that are no experts'."""
    weights = {}
    for name, weight in source.weights.items():
        if found := NUMBERED.fullmatch(name):
            number = int(found[2])
            if share.start <= number < share.end:
                own = f"{found[1]}{number - share.start}{found[3]}"
                weights[own] = replace(weight, name=own)
        else:
            weights[name] = _part(weight, share) if STACKED.fullmatch(name) else weight
    return replace(source, weights=weights)


def is_of_experts(name: str) -> bool:
    """Whether a weight is one of routed experts', in either form."""
    return bool(NUMBERED.fullmatch(name) or STACKED.fullmatch(name))


def _part(weight: Weight, share: Share) -> Weight:
    def read(dtype: torch.dtype) -> Stored:
        whole: Stored = weight.read(dtype)
        if isinstance(whole, MatrixStack):
            return MatrixStack(
                share.size, lambda number: whole.matrix(share.start + number), whole.is_transposed
            )
        assert isinstance(whole, torch.Tensor)
        return whole[share.start : share.end].contiguous()

    shape = (share.size, *weight.shape[1:])
    return replace(
        weight,
        shape=shape,
        stored_bytes=weight.stored_bytes * share.size // max(1, weight.shape[0]),
        read=read,
    )


class ExpertShare(nn.Module):
    """Stands for the experts of a layer, of which some are here: gives what these give."""

    def __init__(self, experts: nn.Module, first: int) -> None:
        """experts: transformers', ours, or quantised ones, of which each call has one for each row."""
        super().__init__()
        self.experts, self.first = experts, first
        self.end = first + int(experts.num_experts)  # type: ignore[arg-type]

    def forward(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """`[T, D]` to `[T, D]`, of those of the experts `top_k_index` `[T, K]` that are here, with their weights
        `[T, K]`; what they give is added in the order of `K`, in float32."""
        is_here = (top_k_index >= self.first) & (top_k_index < self.end)
        rows, places = is_here.nonzero(as_tuple=True)
        total = torch.zeros(hidden_states.shape, dtype=torch.float32, device=hidden_states.device)
        if len(rows):
            chosen = (top_k_index[rows, places] - self.first)[:, None]
            part = self.experts(hidden_states[rows], chosen, top_k_weights[rows, places][:, None])
            total.index_add_(0, rows, part.float())
        return total.to(hidden_states.dtype)


def wrap(module: nn.Module, share: Share) -> None:
    """Puts an `ExpertShare` in the place of the experts of each layer."""
    for part in list(module.modules()):
        experts = getattr(part, EXPERTS, None)
        is_one = isinstance(experts, nn.Module) and not isinstance(part, QuantisedExperts | ExpertShare)
        if is_one and hasattr(experts, "num_experts"):
            setattr(part, EXPERTS, ExpertShare(experts, share.start))  # type: ignore[arg-type]
