"""A GGUF file: its metadata and its tensors, little endian, versions 2 and 3.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worker_svc.gguf.blocks import STORAGES, Floats, Storage, dequantise
from worker_svc.gguf.errors import GgufError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT_BYTES = 32
"""Alignment of tensors where the metadata says nothing else."""
STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""struct's letter of each type of metadata that is one number."""
MAX_DIMENSIONS = 4


@dataclass(frozen=True)
class Tensor:
    """One tensor of the file, not read yet."""

    name: str
    shape: tuple[int, ...]
    """Rows first, as torch has it; the file has it the other way round."""
    storage: Storage
    offset: int
    """Bytes from the beginning of the file."""

    @property
    def num_elements(self) -> int:
        product = 1
        for length in self.shape:
            product *= length
        return product


class GgufFile:
    """An open file, mapped into memory."""

    def __init__(self, path: Path) -> None:
        """Raises GgufError for what is not a whole GGUF file, or has numbers stored in a way that is not read here."""
        self._path = path
        try:
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise GgufError(f"{path} cannot be read: {error}") from None
        try:
            self.metadata, self.tensors = self._read()
        except (struct.error, UnicodeDecodeError, KeyError):
            raise GgufError(f"{path} is not a whole GGUF file") from None

    def value(self, name: str, default: Any = None) -> Any:
        """The metadata of that name; GgufError when there is none, and no default."""
        found = self.metadata.get(name, default)
        if found is None:
            raise GgufError(f"{self._path} has no {name}")
        return found

    def read(self, tensor: Tensor) -> Floats:
        """The numbers of a tensor in float32, in its shape."""
        num_bytes = tensor.storage.num_bytes(tensor.num_elements)
        stored = self._data[tensor.offset : tensor.offset + num_bytes]
        return dequantise(stored, tensor.storage).reshape(tensor.shape)

    def _read(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        cursor = _Cursor(self._data)
        if cursor.take(4) != MAGIC:
            raise GgufError(f"{self._path} is not a GGUF file")
        version = cursor.number("I")
        if version not in VERSIONS:
            raise GgufError(f"{self._path} is GGUF of version {version}, which is not read here")
        num_tensors, num_values = cursor.number("Q"), cursor.number("Q")
        metadata = {cursor.string(): cursor.value(cursor.number("I")) for _ in range(num_values)}
        entries = [self._read_entry(cursor) for _ in range(num_tensors)]
        alignment = metadata.get("general.alignment", ALIGNMENT_BYTES)
        start = -(-cursor.at // alignment) * alignment
        tensors = {
            name: Tensor(name, shape, storage, start + offset) for name, shape, storage, offset in entries
        }
        ends = [each.offset + each.storage.num_bytes(each.num_elements) for each in tensors.values()]
        if max(ends, default=0) > len(self._data):
            raise GgufError(f"{self._path} is truncated: it has {len(self._data)} of {max(ends)} bytes")
        return metadata, tensors

    def _read_entry(self, cursor: _Cursor) -> tuple[str, tuple[int, ...], Storage, int]:
        name = cursor.string()
        num_dimensions = cursor.number("I")
        if num_dimensions > MAX_DIMENSIONS:
            raise GgufError(f"{self._path}: the tensor {name} has {num_dimensions} dimensions")
        shape = tuple(cursor.number("Q") for _ in range(num_dimensions))[::-1]
        kind = cursor.number("I")
        if kind not in STORAGES:
            raise GgufError(f"{self._path}: the tensor {name} is stored as GGML type {kind}, not read here")
        return name, shape, STORAGES[kind], cursor.number("Q")


class _Cursor:
    """Where the reading of the file's head is."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.at = 0

    def take(self, num_bytes: int) -> bytes:
        piece = self._data[self.at : self.at + num_bytes]
        self.at += num_bytes
        return piece

    def number(self, letter: str) -> Any:
        return self.numbers(letter, 1)[0]

    def numbers(self, letter: str, count: int) -> tuple[Any, ...]:
        layout = f"<{count}{letter}"
        # Asked of the map, not of a slice: a count that the file does not hold must not take the memory for it.
        values = struct.unpack_from(layout, self._data, self.at)
        self.at += struct.calcsize(layout)
        return values

    def string(self) -> str:
        length = self.number("Q")
        if length > len(self._data) - self.at:
            raise struct.error("a string that is longer than the file")
        return self.take(length).decode()

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.number(SCALARS[kind])
        of, count = self.number("I"), self.number("Q")
        if of in SCALARS:
            return list(self.numbers(SCALARS[of], count))
        return [self.value(of) for _ in range(count)]
