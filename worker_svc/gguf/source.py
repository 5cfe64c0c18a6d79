"""The weights of a GGUF file by transformers' names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from worker_svc.gguf.decoding import bits_of, decode
from worker_svc.gguf.errors import GgufError
from worker_svc.gguf.families import Family, find_family, name_of
from worker_svc.gguf.parts import open_parts
from worker_svc.gguf.reader import GgufFile, Tensor
from worker_svc.gguf.summary import describe
from worker_svc.runner.errors import ModelLoadError
from worker_svc.weights.quantised import QuantisedMatrix
from worker_svc.weights.tensor_file import MappedFile
from worker_svc.weights.weight import Weight


def open_gguf(path: Path) -> tuple[list[Weight], str]:
    """All weights of the model of which `path` is the file, or one of them, and in a few words how they are stored.
    ModelLoadError for what is not served."""
    try:
        files = open_parts(path)
        family = find_family(files[0])
        heads = _heads(files[0])
        weights = [weight for file in files for weight in _weights(file, family, heads)]
        return weights, describe(files)
    except GgufError as error:
        raise ModelLoadError(f"{error}.") from error


def _heads(file: GgufFile) -> tuple[int, int]:
    """Heads of queries, and of keys."""
    prefix = file.text("general.architecture")
    queries = file.size(f"{prefix}.attention.head_count")
    return queries, file.size(f"{prefix}.attention.head_count_kv", queries)


def _weights(file: GgufFile, family: Family, heads: tuple[int, int]) -> list[Weight]:
    mapped = MappedFile(file.path)
    named = [(name_of(family, tensor.name), tensor) for tensor in file.tensors.values()]
    return [
        _weight(mapped, part, own, family, heads)
        for name, tensor in named
        if name is not None
        for own, part in _of_experts(name, tensor)
    ]


def _of_experts(name: str, tensor: Tensor) -> list[tuple[str, Tensor]]:
    """The matrices of single experts, where the tensor has those of all; else the tensor itself."""
    if "{}" not in name:
        return [(name, tensor)]
    num_experts, *shape = tensor.shape
    part = replace(tensor, shape=tuple(shape))
    return [
        (name.format(expert), replace(part, offset=tensor.offset + expert * part.num_bytes))
        for expert in range(num_experts)
    ]


def _weight(mapped: MappedFile, tensor: Tensor, name: str, family: Family, heads: tuple[int, int]) -> Weight:
    num_heads = (
        {"q_proj": heads[0], "k_proj": heads[1]}.get(name.split(".")[-2], 0) if family.has_neighbours else 0
    )
    if num_heads and (num_heads < 1 or tensor.shape[0] % (2 * num_heads)):
        raise GgufError(f"the tensor {tensor.name} of {tensor.shape[0]} rows has not {num_heads} heads")
    is_norm = family.are_norms_plus_one and "norm" in name

    def read(_dtype: torch.dtype) -> torch.Tensor | QuantisedMatrix:
        stored = mapped.view(tensor.offset, tensor.num_bytes)
        if tensor.offset % 4:
            stored = stored.clone()
        made = decode(tensor.name, stored, tensor.storage, tensor.shape)
        if num_heads:
            made = halves_apart(made, num_heads)
        if is_norm and isinstance(made, torch.Tensor):
            made = made.float() - 1
        if isinstance(made, QuantisedMatrix):
            mapped.forget(tensor.offset, tensor.num_bytes)
        return made

    return Weight(name, tensor.shape, tensor.num_bytes, read, bits=bits_of(tensor.storage))


def halves_apart(weight: torch.Tensor | QuantisedMatrix, num_heads: int) -> torch.Tensor | QuantisedMatrix:
    """Rows of queries or keys as transformers rotates them: the first halves of the pairs, then the second ones. In a
    GGUF file of a llama the two of a pair are neighbours."""
    if isinstance(weight, QuantisedMatrix):
        order = _order(weight.shape[0], num_heads)
        offsets = None if weight.offsets is None else weight.offsets[order]
        return replace(weight, codes=weight.codes[order], scales=weight.scales[order], offsets=offsets)
    return weight[_order(weight.shape[0], num_heads)]


def _order(num_rows: int, num_heads: int) -> torch.Tensor:
    return torch.arange(num_rows).view(num_heads, -1, 2).transpose(1, 2).flatten()
