"""The part of each stored weight that a rank has."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

import torch

from worker_svc.runner.split.expert_share import is_of_experts
from worker_svc.runner.split.plan import SplitPlan
from worker_svc.weights.quantised import QuantisedMatrix
from worker_svc.weights.source import WeightSource
from worker_svc.weights.stack import MatrixStack
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


@dataclass(frozen=True)
class Cut:
    """Parts of one dimension of a weight, side by side; no part: zeros of its shape, for another rank adds it."""

    dim: int = 0
    parts: tuple[slice, ...] = ()

    def of(self, whole: Stored) -> Stored:
        """A rank's own of it. Whole numbers stay so, but where a group of them would be cut through."""
        if isinstance(whole, MatrixStack):
            # Its matrices are [outputs, inputs], whichever way the parameter has them.
            dim = 2 - self.dim if whole.is_transposed else self.dim - 1
            of_one = Cut(dim, self.parts)
            return MatrixStack(
                whole.num_experts,
                lambda expert: of_one._of_matrix(whole.matrix(expert)),
                whole.is_transposed,
            )
        return self._of_matrix(whole)

    def shape_of(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a rank's own."""
        if not self.parts:
            return whole
        length = sum(part.stop - part.start for part in self.parts)
        return (*whole[: self.dim], length, *whole[self.dim + 1 :])

    def _of_matrix(self, whole: torch.Tensor | QuantisedMatrix) -> torch.Tensor | QuantisedMatrix:
        if isinstance(whole, torch.Tensor):
            return self._of_tensor(whole)
        if self.dim == 0:
            return whole.with_rows(self._of_tensor)
        size = whole.group_size
        width = sum(part.stop - part.start for part in self.parts)
        if size == whole.shape[1]:  # one group, of which all columns have the scale
            return replace(whole, codes=self._of_tensor(whole.codes), group_size=width)
        if any(part.start % size or part.stop % size for part in self.parts):
            return self._of_tensor(whole.dequantise())
        groups = Cut(1, tuple(slice(part.start // size, part.stop // size) for part in self.parts))
        offsets = None if whole.offsets is None else groups._of_tensor(whole.offsets)
        return replace(
            whole, codes=self._of_tensor(whole.codes), scales=groups._of_tensor(whole.scales), offsets=offsets
        )

    def _of_tensor(self, whole: torch.Tensor) -> torch.Tensor:
        if not self.parts:
            return torch.zeros_like(whole)
        pieces = [whole.narrow(self.dim, part.start, part.stop - part.start) for part in self.parts]
        return pieces[0].contiguous() if len(pieces) == 1 else torch.cat(pieces, self.dim)


def split_source(
    source: WeightSource, plan: SplitPlan, family: str, *, has_experts_whole: bool = False
) -> WeightSource:
    """The weights as this rank has them; those that no plan names are there as a whole, and so are those of experts
    that are not cut."""
    weights = {}
    for name, weight in source.weights.items():
        is_whole = has_experts_whole and is_of_experts(name)
        cut = None if is_whole else cut_of(name, weight.shape, plan, family)
        weights[name] = weight if cut is None else _part(weight, cut)
    return replace(source, weights=weights)


def _part(weight: Weight, cut: Cut) -> Weight:
    shape = cut.shape_of(weight.shape)
    share = math.prod(shape) / max(1, weight.num_elements)
    return replace(
        weight,
        shape=shape,
        stored_bytes=int(weight.stored_bytes * share),
        read=lambda dtype: cut.of(weight.read(dtype)),
    )


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
        return Cut(0, (queries.of(shape[0]),))
    if part in KEYS:
        return Cut(0, (keys.of(shape[0]),))
    if part == JOINED:
        dim = shape[0] // (queries.total + 2 * keys.total)
        q, k = queries.of(dim * queries.total), keys.of(dim * keys.total)
        first, second = dim * queries.total, dim * (queries.total + keys.total)
        return Cut(0, (q, *(slice(k.start + at, k.stop + at) for at in (first, second))))
    if part in OUT:
        return Cut(1, (queries.of(shape[1]),)) if kind == "weight" else _once(plan)
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
        return Cut(dim, (slice(2 * part.start, 2 * part.stop),))
    return Cut(dim, (part, slice(half + part.start, half + part.stop)))


def _width(dim: int, shape: tuple[int, ...], plan: SplitPlan) -> Cut | None:
    share = plan.width(shape[dim])
    return None if share is None else Cut(dim, (share.of(shape[dim]),))


def _once(plan: SplitPlan) -> Cut | None:
    return None if plan.is_first else Cut()
