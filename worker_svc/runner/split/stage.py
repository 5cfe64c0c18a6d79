"""Which layers of a model a stage of a pipeline has (RK12)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.support import HYBRID_FAMILIES
from worker_svc.runner.split.ends import EMBEDDING_WEIGHT, HEAD_WEIGHT, NORM_WEIGHT
from worker_svc.runner.split.plan import DIVIDED
from worker_svc.weights.source import WeightSource

LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
HEAD_SHARE = 0.5
"""What a head counts: a step that decodes reads it as a layer is read, and one that computes a prompt hardly does."""
STAGED = DIVIDED | HYBRID_FAMILIES | {"gemma4_unified_text"}
"""Families that are compared with one process."""


@dataclass(frozen=True)
class Stage:
    """One of `size` stages: layers `[first, end)`."""

    number: int
    size: int
    first: int
    end: int
    has_head: bool = False
    """Whether logits are made here: at rank 0, where tokens are chosen."""

    reads_tokens: bool = False
    """Whether layers are given something by token beside the hidden states: then each stage has the embeddings."""

    @property
    def is_first(self) -> bool:
        """Its states come from tokens."""
        return self.number == 0

    @property
    def is_last(self) -> bool:
        """Its states go back to rank 0, behind the last norm."""
        return self.number == self.size - 1

    @property
    def layers(self) -> range:
        """Numbers of its layers in the model."""
        return range(self.first, self.end)

    def has(self, name: str) -> bool:
        """Whether a weight of that name is needed here."""
        layer = LAYER.search(name)
        if layer:
            return int(layer[1]) in self.layers
        if EMBEDDING_WEIGHT.search(name):
            return self.is_first or self.reads_tokens
        if HEAD_WEIGHT.search(name):
            return self.has_head
        return self.is_last or not NORM_WEIGHT.search(name)


def stage_of(config: Any, source: WeightSource, number: int, size: int, *, has_head: bool) -> Stage:
    """The stage `number` of a text model. ModelLoadError where it cannot be divided so."""
    family, num_layers = str(config.model_type), int(config.num_hidden_layers)
    if family not in STAGED:
        raise ModelLoadError(f"pipeline_parallel: model_type {family!r} is not served by several stages.")
    if size > num_layers:
        raise ModelLoadError(f"pipeline_parallel is {size}, and the model has {num_layers} layers.")
    inseparable = no_cuts(config)
    most = num_layers - len(inseparable)
    if size > most:
        raise ModelLoadError(
            f"pipeline_parallel is {size}, and layers {min(inseparable) - 1} to {max(inseparable)} of the model have "
            f"to be of one stage, for some read keys and values of others: it can have {most} stages."
        )
    costs, of_head = costs_of(source, num_layers)
    first, end = even_ranges(costs, size, of_head, inseparable)[number]
    reads_tokens = bool(getattr(config, "hidden_size_per_layer_input", 0))
    return Stage(number, size, first, end, has_head, reads_tokens)


def no_cuts(config: Any) -> frozenset[int]:
    """Layers that are of the same stage as the one ahead of them: between them some layer reads the keys and values of
    an earlier one, the last of its kind that keeps some for others (C15)."""
    modes = getattr(config, "kv_sharing_modes", None) or []
    inseparable: set[int] = set()
    for reader, mode in enumerate(modes):
        if mode == "reuse":
            kind = config.layer_types[reader]
            kept = [n for n in range(reader) if modes[n] == "store" and config.layer_types[n] == kind]
            inseparable.update(range(kept[-1] + 1, reader + 1))
    return frozenset(inseparable)


def costs_of(source: WeightSource, num_layers: int) -> tuple[list[float], float]:
    """What a step reads of each layer, and of the head on average: bytes of their weights, as they are stored."""
    costs, head, embedding = [0.0] * num_layers, 0.0, 0.0
    for name, weight in source.weights.items():
        layer = LAYER.search(name)
        if layer and int(layer[1]) < num_layers:
            costs[int(layer[1])] += weight.stored_bytes
        elif HEAD_WEIGHT.search(name):
            head += weight.stored_bytes
        elif EMBEDDING_WEIGHT.search(name):
            embedding += weight.stored_bytes
    return costs, HEAD_SHARE * (head or embedding)


def even_ranges(
    costs: Sequence[float], size: int, of_head: float, inseparable: Set[int] = frozenset()
) -> list[tuple[int, int]]:
    """Layers `[first, end)` of each stage, one at least, such that the stage that costs most costs as little as can be;
    the first has the head besides, and none begins with an `inseparable` one. Of those, the earlier stages have as many
    layers as they can."""
    num_layers = len(costs)
    ends = [0.0]
    for cost in costs:
        ends.append(ends[-1] + cost)
    # least[s][n]: of the dearest among stages s and later, which have layers n and later.
    least: list[list[tuple[float, int]]] = [[(float("inf"), 0)] * (num_layers + 1) for _ in range(size + 1)]
    least[size][num_layers] = (0.0, num_layers)
    for stage in reversed(range(size)):
        for first in range(num_layers):
            options = [
                (
                    max(ends[end] - ends[first] + (of_head if stage == 0 else 0.0), least[stage + 1][end][0]),
                    end,
                )
                for end in range(first + 1, num_layers + 1)
                if end not in inseparable
            ]
            least[stage][first] = min(options, key=lambda option: (option[0], -option[1]))
    ranges, first = [], 0
    for stage in range(size):
        end = least[stage][first][1]
        ranges.append((first, end))
        first = end
    return ranges


def only_of(source: WeightSource, stage: Stage) -> WeightSource:
    """The weights that a stage has."""
    weights: Mapping[str, Any] = source.weights
    return replace(source, weights={name: each for name, each in weights.items() if stage.has(name)})
