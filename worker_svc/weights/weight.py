"""One weight of a checkpoint, by transformers' name of it, not read yet."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch

from worker_svc.weights.quantised import QuantisedMatrix
from worker_svc.weights.stack import MatrixStack
from worker_svc.weights.tensor_file import StoredTensor

Stored: TypeAlias = torch.Tensor | QuantisedMatrix | MatrixStack
"""What a checkpoint has of a weight: numbers, or whole numbers with scales."""


@dataclass(frozen=True)
class Weight:
    """What of one or several stored tensors becomes one tensor of the model."""

    name: str
    shape: tuple[int, ...]
    stored_bytes: int
    """In the file, scales and all."""
    read: Callable[[torch.dtype], Stored]
    """Numbers with a scheme of their own come in the dtype that is asked for, others as they are stored."""
    forget: Callable[[], None] = lambda: None
    """Gives up the pages of the file that were read, where what was read is not wanted any more."""

    bits: int | None = None
    """Bits of the whole numbers as which it is read; None: it is read as numbers of a dtype."""

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)


def plain(stored: StoredTensor) -> Weight:
    """A tensor that is what it says."""
    return Weight(stored.name, stored.shape, stored.num_bytes, lambda _dtype: stored.load(), stored.forget)


def made_of(
    parts: list[StoredTensor],
    shape: tuple[int, ...],
    name: str,
    read: Callable[[torch.dtype], Stored],
    bits: int | None = None,
) -> Weight:
    """A weight of several tensors, whose pages are given up once it is read: `read` returns copies."""

    def read_and_forget(dtype: torch.dtype) -> Stored:
        made = read(dtype)
        for part in parts:
            part.forget()
        return made

    return Weight(name, shape, sum(part.num_bytes for part in parts), read_and_forget, bits=bits)
