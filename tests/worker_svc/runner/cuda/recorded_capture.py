"""Stands in for CUDA graphs on a machine without a GPU: runs a step once and records what a graph of it would read.

A graph keeps the addresses that its kernels read, not the tensors. What a step reads and did not make itself has to
outlive the capture, and a step that needs the host in between cannot be captured at all."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from triton.runtime.interpreter import GridExecutor

from worker_svc.runner.cuda.captures import Results

SYNCHRONIZING = frozenset(
    f"aten::{name}"
    for name in (
        "_local_scalar_dense",
        "item",
        "argwhere",
        "nonzero_numpy",
        "nonzero",
        "masked_select",
        "_unique2",
        "unique_consecutive",
        "unique_dim",
        "bincount",
        "equal",
        "is_nonzero",
    )
)
"""Operators whose result has to be on the host, or whose shape depends on numbers of the device. In inference mode
torch hands over composed ones as they are."""
FROM_HOST = (torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy, torch.Tensor.new_tensor)
"""Functions that copy numbers of the host."""
ON_HOST_BY_DEFAULT = (
    *(torch.arange, torch.zeros, torch.ones, torch.full, torch.empty, torch.eye, torch.linspace),
    *(torch.scalar_tensor, torch.tril_indices, torch.triu_indices),
)
"""Functions that make a tensor on the host unless they are told a device."""


class HostNeededError(RuntimeError):
    """A captured function needs the host: a graph of it would not be right, or CUDA would refuse it."""


class RecordedCapture:
    """A `Capture` that records storages and replays nothing; `lost` names what a replay would read and is freed."""

    def __init__(self) -> None:
        self._read: list[tuple[StorageWeakRef, str]] = []

    def __call__(self, run: Callable[[], Results]) -> tuple[Callable[[], object], Results]:
        """See `Capture`."""
        reads = _Reads()
        with reads.recorded(), _NoHost():
            results = run()
        self._read += reads.of_others
        return (lambda: None), results

    @property
    def num_read(self) -> int:
        """Storages that were read and not made by the captured functions."""
        return len(self._read)

    def lost(self) -> list[str]:
        """Shapes and readers of what captured functions read and is freed by now."""
        gc.collect()
        return [reader for storage, reader in self._read if storage.expired()]


class _Reads(TorchDispatchMode):
    """Notes the storages that operators and kernels read and that none of them has made."""

    def __init__(self) -> None:
        super().__init__()
        self.of_others: list[tuple[StorageWeakRef, str]] = []
        self._seen: dict[int, StorageWeakRef] = {}
        """By address. A weak reference keeps the address from being used again."""

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Within it, kernels of Triton's interpreter are recorded beside operators. They do not run: a capture does
        not run them either."""

        def recorded_launch(executor: Any, *args: Any, **kwargs: Any) -> None:
            self._note((args, kwargs), executor.fn.__name__, made=False)

        with patch.object(GridExecutor, "__call__", recorded_launch), self:
            yield

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = func._schema.name
        self._note((args, kwargs), name, made=False)
        if waits_for_device(func, args):
            raise HostNeededError(f"{name} waits for the device{_place()}")
        out = func(*args, **(kwargs or {}))
        self._note(out, name, made=True)
        return out

    def _note(self, values: Any, reader: str, *, made: bool) -> None:
        for leaf in tree_leaves(values):
            if isinstance(leaf, torch.Tensor):
                storage = StorageWeakRef(leaf.untyped_storage())
                if self._seen.setdefault(storage.cdata, storage) is storage and not made:
                    self.of_others.append((storage, f"{tuple(leaf.shape)} {leaf.dtype}, read by {reader}"))


class _NoHost(TorchFunctionMode):
    """Refuses functions that make tensors on the host."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if func in FROM_HOST or (func in ON_HOST_BY_DEFAULT and named.get("device") is None):
            raise HostNeededError(f"torch.{func.__name__} makes a tensor on the host{_place()}")
        return func(*args, **named)


def waits_for_device(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether an operator waits for the device with these arguments; an index by booleans has as many rows as there
    are, and torch's grouped product copies its offsets to the host in all types but bfloat16."""
    name, overload = func._schema.name, func._schema.overload_name
    if name in SYNCHRONIZING:
        return True
    if name in ("aten::index", "aten::index_put", "aten::index_put_"):
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    if name == "aten::where":
        return len(args) == 1
    if name == "aten::_grouped_mm":
        return bool(args[0].dtype != torch.bfloat16)
    return name == "aten::repeat_interleave" and overload == "Tensor"


def _place() -> str:
    """Where the function is called: the last frames outside of torch and of this file."""
    frames = [f for f in traceback.extract_stack() if "/torch/" not in f.filename and f.filename != __file__]
    return "".join(f"\n  {f.filename}:{f.lineno} {f.line}" for f in frames[-3:])
