"""A GGUF file: its metadata and its tensors, little endian, versions 2 and 3.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worker_svc.gguf.blocks import NOT_READ, STORAGES, Storage
from worker_svc.gguf.errors import GgufError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT_BYTES = 32
"""Alignment of tensors where the metadata says nothing else."""
STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""struct's letter of each type of metadata that is one number."""
MAX_DIMENSIONS = 4
MAX_DEPTH = 4
"""Arrays in arrays of metadata."""
MAX_ITEMS = 1 << 24
"""Most numbers of one array of metadata, far above any vocabulary."""
MAX_NUMBER = 1e30
"""What float32 still has, with room; nan is below nothing."""
MAX_SIZE = 1 << 31
"""Above any length of a model."""


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

    @property
    def num_bytes(self) -> int:
        return self.storage.num_bytes(self.num_elements)


class GgufFile:
    """An open file, mapped into memory."""

    def __init__(self, path: Path) -> None:
        """Raises GgufError for what is not a whole GGUF file, or has numbers stored in a way that is not read here."""
        self.path = path
        try:
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise GgufError(f"{path} cannot be read: {error}") from None
        try:
            self.metadata, self.tensors = self._read()
        except (struct.error, UnicodeDecodeError, KeyError, MemoryError):
            raise GgufError(f"{path} is not a whole GGUF file") from None

    # -- metadata by name: GgufError for another type, and when there is none and no default --

    def text(self, name: str, default: str | None = None) -> str:
        """A string."""
        found: str = self._value(name, default, "string", lambda value: isinstance(value, str))
        return found

    def size(self, name: str, default: int | None = None) -> int:
        """A whole number above 0."""
        found: int = self._value(
            name, default, "size", lambda value: _is_whole(value) and 0 < value < MAX_SIZE
        )
        return found

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number."""
        found: float = self._value(name, default, "number", _is_finite)
        return found

    def flag(self, name: str, default: bool) -> bool:
        """A truth value."""
        found: bool = self._value(name, default, "truth value", lambda value: isinstance(value, bool))
        return found

    def texts(self, name: str) -> list[str]:
        """A list of strings."""
        found: list[str] = self._value(name, None, "list of strings", lambda value: _is_list(value, str))
        return found

    def scores(self, name: str) -> list[float]:
        """A list of numbers with fractions."""
        found: list[float] = self._value(name, None, "list of scores", lambda value: _is_list(value, float))
        return found

    def numbers(self, name: str, default: list[int]) -> list[int]:
        """Whole numbers."""
        found: list[int] = self._value(name, default, "list of numbers", lambda value: _is_list(value, int))
        return found

    def _value(self, name: str, default: Any, what: str, is_right: Callable[[Any], bool]) -> Any:
        found = self.metadata.get(name, default)
        if found is None:
            raise GgufError(f"{self.path} has no {name}")
        if not is_right(found):
            raise GgufError(f"{self.path}: {name} is no {what}")
        return found

    def bytes_of(self, tensor: Tensor) -> bytes:
        """What is stored of a tensor."""
        return self._data[tensor.offset : tensor.offset + tensor.num_bytes]

    def _read(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        cursor = _Cursor(self._data)
        if cursor.take(4) != MAGIC:
            raise GgufError(f"{self.path} is not a GGUF file")
        version = cursor.number("I")
        if version not in VERSIONS:
            raise GgufError(f"{self.path} is GGUF of version {version}, which is not read here")
        num_tensors, num_values = cursor.number("Q"), cursor.number("Q")
        metadata = {cursor.string(): cursor.value(cursor.number("I")) for _ in range(num_values)}
        entries = [self._read_entry(cursor) for _ in range(num_tensors)]
        alignment = metadata.get("general.alignment", ALIGNMENT_BYTES)
        if not _is_whole(alignment) or alignment < 1:
            raise GgufError(f"{self.path}: general.alignment is no size")
        start = -(-cursor.at // alignment) * alignment
        tensors = {
            name: Tensor(name, shape, storage, start + offset) for name, shape, storage, offset in entries
        }
        if len(tensors) < len(entries):
            raise GgufError(f"{self.path} has two tensors of one name")
        ends = [each.offset + each.num_bytes for each in tensors.values()]
        if max(ends, default=0) > len(self._data):
            raise GgufError(f"{self.path} is truncated: it has {len(self._data)} of {max(ends)} bytes")
        return metadata, tensors

    def _read_entry(self, cursor: _Cursor) -> tuple[str, tuple[int, ...], Storage, int]:
        name = cursor.string()
        num_dimensions = cursor.number("I")
        if num_dimensions > MAX_DIMENSIONS:
            raise GgufError(f"{self.path}: the tensor {name} has {num_dimensions} dimensions")
        shape = tuple(cursor.number("Q") for _ in range(num_dimensions))[::-1]
        kind = cursor.number("I")
        if kind not in STORAGES:
            known = NOT_READ.get(kind, f"GGML type {kind}")
            raise GgufError(f"{self.path}: the tensor {name} is stored as {known}, which is not read here")
        storage = STORAGES[kind]
        if (shape[-1] if shape else 1) % storage.block_elements:
            raise GgufError(f"{self.path}: the rows of the tensor {name} do not fill their blocks")
        return name, shape, storage, cursor.number("Q")


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

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.number(SCALARS[kind])
        of, count = self.number("I"), self.number("Q")
        if depth >= MAX_DEPTH or count > MAX_ITEMS:
            raise struct.error("an array that is too deep or too long")
        if of in SCALARS:
            return list(self.numbers(SCALARS[of], count))
        return [self.value(of, depth + 1) for _ in range(count)]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_NUMBER


def _is_list(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)
