"""Stands in for CUDA graphs on a machine without a GPU: records what a step calls, and calls it again on the same
memory.

As a graph it knows addresses, not tensors: memory that the step read and did not make belongs to others, and a replay
that finds it freed raises where a graph would read what is there by then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from triton.runtime.interpreter import GridExecutor

from worker_svc.runner.cuda.captures import Results

WAITING = ("aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::masked_select")
"""Operators whose result the host waits for."""
UNWRITTEN = ("aten::empty", "aten::new_empty")
"""Operators, by the beginning of their names, that leave memory as it is."""


class LostMemoryError(RuntimeError):
    """A replay reads memory that was freed behind the capture."""


@dataclass(frozen=True)
class Foreign:
    """A tensor on memory of others, which it does not keep."""

    storage: StorageWeakRef
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    reader: str
    """The operator or kernel that reads it."""

    @staticmethod
    def of(tensor: torch.Tensor, reader: str) -> Foreign:
        """A tensor's memory and shape."""
        size, offset = tuple(tensor.size()), int(tensor.storage_offset())
        return Foreign(weakly(tensor), tensor.dtype, size, tensor.stride(), offset, reader)

    def tensor(self) -> torch.Tensor:
        """The tensor again. Raises LostMemoryError."""
        new: Any = torch.UntypedStorage._new_with_weak_ptr
        storage = new(self.storage.cdata)
        if storage is None:
            raise LostMemoryError(
                f"a captured step reads {self.size} {self.dtype} in {self.reader}, which was freed after its capture"
            )
        return torch.empty(0, dtype=self.dtype).set_(storage, self.offset, self.size, self.stride)


class StandInCapture:
    """A `Capture` without a GPU, for steps on Triton's interpreter."""

    def __call__(self, run: Callable[[], Results]) -> tuple[Callable[[], object], Results]:
        """See `Capture`. Kernels do not run meanwhile, as in a real capture."""
        recording = _Recording()
        with recording.recorded():
            results = run()
        return recording.replay, results


def weakly(tensor: torch.Tensor) -> StorageWeakRef:
    """A tensor's memory, which may be freed. Its address, `cdata`, is nobody else's while the reference is there."""
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


class _Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Operators and kernels in the order of their calls."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls: list[Callable[[], None]] = []
        self._own: dict[int, StorageWeakRef] = {}
        """Storages that were made here, by address."""

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Within it, operators run and are recorded; kernels are recorded alone."""
        launch = GridExecutor.__call__

        def record(executor: Any, *args: Any, **kwargs: Any) -> None:
            given = self._keep((args, kwargs), executor.fn.__name__)

            def call() -> None:
                args, kwargs = _restored(given)
                launch(executor, *args, **kwargs)

            self._calls.append(call)

        with patch.object(GridExecutor, "__call__", record), self:
            yield

    def replay(self) -> None:
        """Calls all again. Raises LostMemoryError."""
        for call in self._calls:
            call()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name, named = func._schema.name, kwargs or {}
        if name in WAITING:
            raise RuntimeError(f"{name} waits for the device, and a graph cannot")
        out = func(*args, **named)
        known = {weakly(each).cdata for each in _tensors((args, named))}
        made = {n: each for n, each in enumerate(_tensors(out)) if weakly(each).cdata not in known}
        self._own |= {storage.cdata: storage for storage in map(weakly, made.values())}
        if (made and not name.startswith(UNWRITTEN)) or func._schema.is_mutable:
            self._record(func, self._keep((args, named), name), made)
        return out

    def _record(self, func: Any, given: Any, made: dict[int, torch.Tensor]) -> None:
        """made: results in memory of their own, by number, which a replay writes again."""

        def call() -> None:
            args, kwargs = _restored(given)
            fresh = _tensors(func(*args, **kwargs))
            for number, old in made.items():
                old.copy_(fresh[number])

        self._calls.append(call)

    def _keep(self, values: Any, reader: str) -> Any:
        """Values whose tensors on memory of others are `Foreign`."""

        def kept(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            return value if weakly(value).cdata in self._own else Foreign.of(value, reader)

        return tree_map(kept, values)


def _restored(values: Any) -> Any:
    return tree_map(lambda value: value.tensor() if isinstance(value, Foreign) else value, values)


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
