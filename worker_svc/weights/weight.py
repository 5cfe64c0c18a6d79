"""One weight of a checkpoint, by transformers' name of it, not read yet."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from worker_svc.weights.quantised import QuantisedMatrix
from worker_svc.weights.tensor_file import StoredTensor


@dataclass(frozen=True)
class Weight:
    """What of one or several stored tensors becomes one tensor of the model."""

    name: str
    shape: tuple[int, ...]
    stored_bytes: int
    """In the file, scales and all."""
    read: Callable[[torch.dtype], torch.Tensor | QuantisedMatrix]
    """Numbers with a scheme of their own come in the dtype that is asked for, others as they are stored."""

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)


def plain(stored: StoredTensor) -> Weight:
    """A tensor that is what it says."""
    return Weight(stored.name, stored.shape, stored.num_bytes, lambda _dtype: stored.load())


def made_of(
    parts: list[StoredTensor],
    shape: tuple[int, ...],
    name: str,
    read: Callable[[torch.dtype], torch.Tensor | QuantisedMatrix],
) -> Weight:
    """A weight of several tensors, whose pages are given up once it is read: `read` returns copies."""

    def read_and_forget(dtype: torch.dtype) -> torch.Tensor | QuantisedMatrix:
        made = read(dtype)
        for part in parts:
            part.forget()
        return made

    return Weight(name, shape, sum(part.num_bytes for part in parts), read_and_forget)
