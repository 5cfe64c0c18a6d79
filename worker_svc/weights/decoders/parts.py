"""The stored tensors that make one weight, and what must be true of them."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from worker_svc.runner.errors import ModelLoadError
from worker_svc.weights.tensor_file import StoredTensor

WHOLE_DTYPES = frozenset({torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8})
FLOAT_DTYPES = frozenset({torch.float32, torch.float16, torch.bfloat16, torch.float64})


class Tensors:
    """The stored tensors of a checkpoint by name, and which of them a weight was made of."""

    def __init__(self, tensors: Mapping[str, StoredTensor]) -> None:
        self._tensors = tensors
        self.taken: set[str] = set()

    def ending_in(self, suffix: str) -> list[str]:
        """The names of which `suffix` is the end, without it."""
        return [name.removesuffix(suffix) for name in self._tensors if name.endswith(suffix)]

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def take(self, name: str) -> StoredTensor:
        """Returns that tensor, as part of a weight. ModelLoadError when there is none."""
        if name not in self._tensors:
            raise ModelLoadError(f"the checkpoint lacks {name}, which its quantised weights need.")
        self.taken.add(name)
        return self._tensors[name]

    def take_if_there(self, name: str) -> StoredTensor | None:
        """Returns that tensor, as part of a weight; None when there is none."""
        return self.take(name) if name in self._tensors else None

    def rest(self) -> list[StoredTensor]:
        """What was not taken."""
        return [stored for name, stored in self._tensors.items() if name not in self.taken]


def check_shape(stored: StoredTensor, shape: tuple[int, ...]) -> None:
    """ModelLoadError for another shape."""
    if stored.shape != shape:
        raise ModelLoadError(f"{stored.name} is {list(stored.shape)}, where {list(shape)} is needed.")


def check_matrix(stored: StoredTensor, dtypes: frozenset[torch.dtype]) -> tuple[int, int]:
    """Its two lengths. ModelLoadError for what is no matrix, is empty, or has another dtype."""
    check_dtype(stored, dtypes)
    if len(stored.shape) != 2 or min(stored.shape) < 1:
        raise ModelLoadError(f"{stored.name} is {list(stored.shape)}, where a matrix is needed.")
    return stored.shape[0], stored.shape[1]


def check_dtype(stored: StoredTensor, dtypes: frozenset[torch.dtype]) -> None:
    """ModelLoadError for a dtype that is none of these."""
    if stored.dtype not in dtypes:
        needed = " or ".join(sorted(map(short, dtypes)))
        raise ModelLoadError(f"{stored.name} is {short(stored.dtype)}, where {needed} is needed.")


def group_length(name: str, inputs: int, group_size: int) -> int:
    """Inputs that share a scale; a size of -1 is all of them. ModelLoadError for groups that do not fill the row."""
    length = inputs if group_size == -1 else group_size
    if length < 1 or inputs % length:
        raise ModelLoadError(f"{name}: groups of {group_size} do not divide {inputs} inputs.")
    return length


def load_scales(stored: StoredTensor) -> torch.Tensor:
    """The scales in float32. ModelLoadError for one that is not finite."""
    scales = stored.load().float()
    if not bool(scales.isfinite().all()):
        raise ModelLoadError(f"{stored.name} has a scale that is not finite.")
    return scales


def short(dtype: torch.dtype) -> str:
    """`int8`, not `torch.int8`."""
    return str(dtype).removeprefix("torch.")
