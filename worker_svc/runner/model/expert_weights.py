"""Weights of single experts put together, as models have them: two parameters for all experts of a layer."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch

from worker_svc.runner.cpu.kept_linear import join_matrices
from worker_svc.runner.cpu.packed_linear import PackingError
from worker_svc.weights.quantised import QuantisedMatrix
from worker_svc.weights.served import served_form
from worker_svc.weights.source import WeightSource
from worker_svc.weights.stack import MatrixStack
from worker_svc.weights.weight import Weight

ONE_OF_MANY = re.compile(r".*\blayers\.(\d+)\..*\bexperts\.(\d+)\.(\w+)\.weight")
LAYER = re.compile(r".*\blayers\.(\d+)\..*")
PARTS = {
    "gate_up_proj": (("gate_proj", "up_proj"), ("w1", "w3")),
    "down_proj": (("down_proj",), ("w2",)),
}
"""What checkpoints call the matrices of one expert that make a parameter, side by side."""


def with_stacks(source: WeightSource, modules: Mapping[str, Any]) -> WeightSource:
    """The weights, those of the experts of `modules` as one for each parameter, where all of a layer are there.
    `modules` are transformers' experts by their names."""
    by_layer = {
        found[1]: name
        for name, experts in modules.items()
        if experts.is_concatenated and not experts.is_transposed and (found := LAYER.fullmatch(name))
    }
    single: dict[str, dict[str, dict[int, Weight]]] = defaultdict(lambda: defaultdict(dict))
    for weight in source.weights.values():
        found = ONE_OF_MANY.fullmatch(weight.name)
        if found and found[1] in by_layer:
            single[by_layer[found[1]]][found[3]][int(found[2])] = weight
    weights = dict(source.weights)
    for name, parts in single.items():
        made = _stacked(name, parts, modules[name].num_experts)
        if made:
            gone = {weight.name for each in parts.values() for weight in each.values()}
            weights = {key: weight for key, weight in weights.items() if key not in gone}
        weights |= {weight.name: weight for weight in made}
    return replace(source, weights=weights)


def _stacked(name: str, parts: Mapping[str, Mapping[int, Weight]], num_experts: int) -> list[Weight]:
    """Both parameters; none, where a matrix of an expert is missing or has a name that is not known."""
    whole = {part for part, weights in parts.items() if weights.keys() == set(range(num_experts))}
    made = []
    for parameter, choices in PARTS.items():
        for choice in choices:
            if whole.issuperset(choice):
                own = [[parts[part][expert] for part in choice] for expert in range(num_experts)]
                made.append(_parameter(f"{name}.{parameter}", own))
    return made if len(made) == len(PARTS) and len(whole) == len(parts) else []


def _parameter(name: str, own: list[list[Weight]]) -> Weight:
    """One parameter, made of the weights of each expert."""
    outputs = sum(weight.shape[0] for weight in own[0])
    shape = (len(own), outputs, *own[0][0].shape[1:])
    stored_bytes = sum(weight.stored_bytes for weights in own for weight in weights)

    def read(dtype: torch.dtype) -> MatrixStack:
        return MatrixStack(len(own), lambda expert: _side_by_side(own[expert], dtype), is_transposed=False)

    bits = {weight.bits for weights in own for weight in weights}
    return Weight(name, shape, stored_bytes, read, bits=None if None in bits else max(filter(None, bits)))


def _side_by_side(weights: Iterable[Weight], dtype: torch.dtype) -> torch.Tensor | QuantisedMatrix:
    made = [weight.read(dtype) for weight in weights]
    kept = [each for each in made if isinstance(each, QuantisedMatrix)]
    if len(kept) == len(made):
        try:
            return join_matrices(kept)
        except PackingError:  # in no groups that the kernel reads
            pass
    return torch.cat([served_form(each, dtype).to(dtype) for each in made])
