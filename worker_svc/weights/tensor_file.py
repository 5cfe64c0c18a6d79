"""A safetensors file, mapped: its tensors are read where they lie, and only when they are asked for."""

from __future__ import annotations

import json
import math
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import torch

from worker_svc.runner.errors import ModelLoadError
from worker_svc.weights.pages import give_up

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E8M0": torch.float8_e8m0fnu,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""torch's dtypes by the names of safetensors."""
MAX_DIMENSIONS = 8


class MappedFile:
    """A file's bytes, in pages of this process that are never written back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                # Copied on write: torch wants memory that could be written.
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except (OSError, ValueError) as error:
            raise ModelLoadError(f"{path} cannot be read: {error}.") from error
        _maps[torch.frombuffer(self.data, dtype=torch.uint8, count=1).data_ptr()] = self.data

    def view(self, start: int, num_bytes: int) -> torch.Tensor:
        """uint8 `[num_bytes]` of the map."""
        if num_bytes == 0:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(self.data, dtype=torch.uint8, count=num_bytes, offset=start)

    def forget(self, start: int, num_bytes: int) -> None:
        """Gives up the pages that lie wholly in there. Who still looks at them has them read anew."""
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        length = (start + num_bytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
        if length > 0:
            self.data.madvise(mmap.MADV_DONTNEED, first, length)


_maps: WeakValueDictionary[int, mmap.mmap] = WeakValueDictionary()
"""Maps that somebody has tensors of, by where they begin."""


def forget_mapped(tensor: torch.Tensor) -> None:
    """Gives up the pages of a tensor if it lies in a mapped file: who still looks at them has it read anew."""
    place = tensor.data_ptr()
    if tensor.is_contiguous() and any(start <= place < start + len(data) for start, data in _maps.items()):
        give_up(tensor)


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file, as it is stored."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    file: MappedFile
    start: int
    """Bytes from the beginning of the file."""
    num_bytes: int

    def load(self) -> torch.Tensor:
        """The tensor in the file's map; a copy where it does not lie as its numbers have to."""
        stored = self.file.view(self.start, self.num_bytes)
        if self.start % self.dtype.itemsize:
            stored = stored.clone()
        return stored.view(self.dtype).view(self.shape)

    def forget(self) -> None:
        """Gives up its pages."""
        self.file.forget(self.start, self.num_bytes)


def read_tensors(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a safetensors file by name. ModelLoadError names what is wrong, and in which tensor."""
    file = MappedFile(path)
    header_bytes = int.from_bytes(file.data[:8], "little")
    if len(file.data) < 8 + header_bytes:
        raise ModelLoadError(f"{path} is truncated or not a safetensors file ({len(file.data)} bytes).")
    try:
        header = json.loads(file.data[8 : 8 + header_bytes])
        entries = [(str(name), entry) for name, entry in header.items() if name != "__metadata__"]
    except (ValueError, AttributeError, RecursionError) as error:
        raise ModelLoadError(f"{path} has a header that is not valid safetensors.") from error
    return {name: _stored(file, name, entry, 8 + header_bytes) for name, entry in entries}


def _stored(file: MappedFile, name: str, entry: Any, data_start: int) -> StoredTensor:
    try:
        shape = tuple(int(length) for length in entry["shape"])
        start, end = (int(offset) for offset in entry["data_offsets"])
        kind = str(entry["dtype"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelLoadError(f"{file.path} has a header that is not valid safetensors: {name}.") from error
    if len(shape) > MAX_DIMENSIONS or max(shape, default=0) > len(file.data) * 8:
        raise ModelLoadError(f"{file.path}: {name} has a shape that nothing in it has.")
    if kind not in DTYPES:
        raise ModelLoadError(f"{file.path}: {name} is stored as {kind}, which is not read here.")
    dtype = DTYPES[kind]
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != end - start:
        raise ModelLoadError(
            f"{file.path}: {name} has {end - start} bytes, not those of {kind} {list(shape)}."
        )
    if start < 0 or data_start + end > len(file.data):
        raise ModelLoadError(f"{file.path}: {name} lies outside the file.")
    return StoredTensor(name, dtype, shape, file, data_start + start, end - start)
