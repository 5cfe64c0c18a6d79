"""The part of each stored weight that a rank has."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from worker_svc.runner.split.plan import SplitPlan
from worker_svc.weights.served import served_form
from worker_svc.weights.source import WeightSource
from worker_svc.weights.weight import Stored, Weight

QUERIES, KEYS, OUT, JOINED = "q_proj", ("k_proj", "v_proj"), ("o_proj", "dense"), "qkv_proj"
ATTENTION = re.compile(r"\.layers\.\d+\.self_attn\.(\w+)(?:\.(weight|bias))?$")
COLUMNS = frozenset(("gate_proj", "up_proj", "w1", "w3", "c_fc"))
ROWS = frozenset(("down_proj", "w2", "c_proj"))
BOTH = "gate_up_proj"
"""Gates and ups in one: halves, but where a family has them by turns."""
BY_TURNS = frozenset(("gpt_oss",))
TRANSPOSED = frozenset(("gpt_oss", "llama4_text"))
"""Families whose stacks of experts have inputs ahead of outputs."""

MLP = re.compile(
    r"\.layers\.\d+\.(?!self_attn|linear_attn)(?:[\w.]+\.)?"
    rf"({'|'.join(sorted((*COLUMNS, *ROWS, BOTH)))})(?:[._](weight|bias))?$"
)

Cut = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class _Sliced:
    """Along a dimension."""

    dim: int
    part: slice

    def __call__(self, whole: torch.Tensor) -> torch.Tensor:
        index: list[Any] = [slice(None)] * whole.dim()
        index[self.dim] = self.part
        return whole[tuple(index)].contiguous()


@dataclass(frozen=True)
class _Joined:
    """Several parts of a dimension, side by side."""

    dim: int
    parts: tuple[slice, ...]

    def __call__(self, whole: torch.Tensor) -> torch.Tensor:
        return torch.cat([_Sliced(self.dim, part)(whole) for part in self.parts], self.dim)


def _zeros(whole: torch.Tensor) -> torch.Tensor:
    """What another rank adds."""
    return torch.zeros_like(whole)


def split_source(source: WeightSource, plan: SplitPlan, family: str) -> WeightSource:
    """The weights as this rank has them; those that no plan names are there as a whole."""
    weights = {}
    for name, weight in source.weights.items():
        cut = cut_of(name, weight.shape, plan, family)
        weights[name] = weight if cut is None else _part(weight, cut)
    return replace(source, weights=weights)


def _part(weight: Weight, cut: Cut) -> Weight:
    shape = tuple(cut(torch.empty(weight.shape, device="meta")).shape)
    share = torch.Size(shape).numel() / max(1, weight.num_elements)

    def read(dtype: torch.dtype) -> Stored:
        return cut(served_form(weight.read(dtype), dtype))

    return Weight(weight.name, shape, int(weight.stored_bytes * share), read, weight.forget)


def cut_of(name: str, shape: tuple[int, ...], plan: SplitPlan, family: str) -> Cut | None:
    """How a weight of that name and shape is cut; None: it is not."""
    if found := ATTENTION.search(f".{name}"):
        return _of_attention(found[1], found[2] or "", shape, plan)
    if found := MLP.search(f".{name}"):
        return _of_mlp(found[1], found[2] or "", shape, plan, family)
    return None


def _of_attention(part: str, kind: str, shape: tuple[int, ...], plan: SplitPlan) -> Cut | None:
    if plan.heads is None:
        return None
    queries, keys = plan.heads
    if part in (QUERIES, "sinks"):
        return _Sliced(0, queries.of(shape[0]))
    if part in KEYS:
        return _Sliced(0, keys.of(shape[0]))
    if part == JOINED:
        dim = shape[0] // (queries.total + 2 * keys.total)
        q, k = queries.of(dim * queries.total), keys.of(dim * keys.total)
        first, second = dim * queries.total, dim * (queries.total + keys.total)
        return _Joined(0, (q, *(slice(k.start + at, k.stop + at) for at in (first, second))))
    if part in OUT:
        return _Sliced(1, queries.of(shape[1])) if kind == "weight" else _once(plan)
    return None


def _of_mlp(part: str, kind: str, shape: tuple[int, ...], plan: SplitPlan, family: str) -> Cut | None:
    if part in ROWS and kind == "bias":
        return _once(plan)
    if part == BOTH:
        return _of_both(kind, shape, plan, family)
    if part in COLUMNS:
        return _width(len(shape) - 2 if kind != "bias" else 0, shape, plan)
    if part in ROWS:
        return _width(1 if len(shape) < 3 or family in TRANSPOSED else 2, shape, plan)
    return None


def _of_both(kind: str, shape: tuple[int, ...], plan: SplitPlan, family: str) -> Cut | None:
    """Gates and ups, of a dense MLP `[2I, H]`, or of experts `[E, 2I, H]`, `[E, H, 2I]`."""
    is_of_experts = len(shape) == 3 or (kind == "bias" and len(shape) == 2)
    dim = (2 if family in TRANSPOSED and kind != "bias" else 1) if is_of_experts else 0
    half = shape[dim] // 2
    share = plan.width(half)
    if share is None:
        return None
    part = share.of(half)
    if family in BY_TURNS:
        return _Sliced(dim, slice(2 * part.start, 2 * part.stop))
    return _Joined(dim, (part, slice(half + part.start, half + part.stop)))


def _width(dim: int, shape: tuple[int, ...], plan: SplitPlan) -> Cut | None:
    share = plan.width(shape[dim])
    return None if share is None else _Sliced(dim, share.of(shape[dim]))


def _once(plan: SplitPlan) -> Cut | None:
    return None if plan.is_first else _zeros
