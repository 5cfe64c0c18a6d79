"""Kernels built for a CPU that is not here, as a library whose functions an emulator runs in a process of its own.

A call takes along the memory behind each of its pointers, as much as `WINDOW_BYTES` of it: how much of that is the
call's is not known. What has changed when it comes back, and nothing else, is written to where it lay.
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
from collections.abc import Iterator
from ctypes import c_float, c_void_p
from types import SimpleNamespace
from typing import Any

import numpy as np

from worker_svc.runner.cpu.native.kernels import TILE
from worker_svc.runner.cpu.native.structs import (
    DecoderCall,
    ExpertsCall,
    LayerCall,
    PackedCall,
    PackingCall,
)

WINDOW_BYTES = 1 << 20
"""Larger than any array of the tests that use this, but for those of `LARGE`."""
LARGE_BYTES = 8 << 20
LARGE = ("scores", "keys", "values")
SLOT_BYTES = 8
"""Of an argument."""
ARRAYS: dict[tuple[type[ctypes.Structure], str], Any] = {
    (DecoderCall, "layers"): lambda call: LayerCall * call.num_layers,
    (ExpertsCall, "gate_up"): lambda call: PackedCall * call.num_experts,
    (ExpertsCall, "down"): lambda call: PackedCall * call.num_experts,
    (PackingCall, "rows"): lambda call: c_void_p * (TILE * call.tiles),
}
"""Fields that point to what has pointers itself."""
Pointer = tuple[int, int, int]
"""Where it lies, what it points to, and how much of that may be the call's."""


class EmulatedLibrary:
    """Has the face of a `ctypes.CDLL` of the kernels, as far as `Kernels` makes use of it."""

    def __init__(self, command: list[str]) -> None:
        """`command` runs what calls.cpp was built to."""
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        has_dot, count = self._numbers(2)
        layouts = [self._layout() for _ in range(count)]
        self.signalbox_has_dot = lambda: has_dot
        self.signalbox_use_matrix_units = lambda _wanted: 0
        self.signalbox_layouts = Told([*layouts, SimpleNamespace(name=None)])

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate(timeout=60)

    def __getattr__(self, name: str) -> EmulatedFunction:
        function = EmulatedFunction(self, name)
        setattr(self, name, function)
        return function

    def call(self, name: str, arguments: bytes, pointers: list[Pointer]) -> None:
        """Makes a call and writes what it changes. Arguments that are pointers lie in segment 0."""
        segments = [(0, arguments), *read_memory(pointers)]
        places = [number for address, content in segments for number in (address, len(content))]
        head = [len(name), len(segments), len(pointers), *places]
        contents = b"".join(content for _, content in segments)
        assert self._process.stdin is not None
        self._process.stdin.write(_packed(head) + contents + _packed([at for at, *_ in pointers]))
        self._process.stdin.write(name.encode())
        self._process.stdin.flush()
        for address, content in segments:
            write_changes(address, content, self._read(len(content)))

    def _layout(self) -> SimpleNamespace:
        size, last, length = self._numbers(3)
        return SimpleNamespace(size=size, last=last, name=self._read(length))

    def _numbers(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}q", self._read(8 * count))

    def _read(self, count: int) -> bytes:
        assert self._process.stdout is not None
        content = self._process.stdout.read(count)
        if len(content) < count:
            raise RuntimeError(f"the emulated kernels ended with {self._process.wait(60)}")
        return content


class Told:
    """A function of the library that gives what is known already."""

    restype: Any = None

    def __init__(self, told: list[SimpleNamespace]) -> None:
        self._told = told

    def __call__(self) -> list[SimpleNamespace]:
        """What the library told."""
        return self._told


class EmulatedFunction:
    """A function of the library; takes what one of `ctypes` takes."""

    argtypes: list[Any]
    restype: Any = None

    def __init__(self, library: EmulatedLibrary, name: str) -> None:
        self._library, self._name = library, name

    def __call__(self, *values: Any) -> None:
        """Makes the call."""
        slots, pointers = [], []
        for number, (kind, value) in enumerate(zip(self.argtypes, values, strict=True)):
            at = SLOT_BYTES * number
            if kind is c_float:
                slots.append(struct.pack("<f4x", value))
            elif isinstance(value, ctypes.Structure):
                address = ctypes.addressof(value)
                slots.append(_packed([address]))
                pointers.append((at, address, ctypes.sizeof(value)))
                pointers.extend(pointers_of(value))
            else:
                slots.append(_packed([int(value)]))
                if kind is c_void_p and value:
                    pointers.append((at, int(value), WINDOW_BYTES))
        self._library.call(self._name, b"".join(slots), pointers)


def pointers_of(call: ctypes.Structure) -> Iterator[Pointer]:
    """Those of a struct, and those that lie behind them."""
    for name, kind in type(call)._fields_:  # type: ignore[misc]
        at = ctypes.addressof(call) + getattr(type(call), name).offset
        value = getattr(call, name)
        if isinstance(value, ctypes.Structure):
            yield from pointers_of(value)
        elif kind is c_void_p and value:
            array = ARRAYS.get((type(call), name))
            if array is None:
                yield at, value, LARGE_BYTES if name in LARGE else WINDOW_BYTES
                continue
            items = array(call).from_address(value)
            yield at, value, ctypes.sizeof(items)
            for number, item in enumerate(items):
                if isinstance(item, ctypes.Structure):
                    yield from pointers_of(item)
                else:
                    yield value + number * ctypes.sizeof(c_void_p), item, WINDOW_BYTES


def read_memory(pointers: list[Pointer]) -> list[tuple[int, bytes]]:
    """Addresses and contents of all that is pointed to, without what this process has no memory for: there may be holes
    between two that are near each other."""
    spans: list[tuple[list[int], int]] = []
    for start, size in sorted({(target, size) for _, target, size in pointers}):
        if spans and start <= spans[-1][1]:
            starts, end = spans[-1]
            spans[-1] = [*starts, start], max(end, start + size)
        else:
            spans.append(([start], start + size))
    memory, read = os.open("/proc/self/mem", os.O_RDONLY), []
    try:
        for starts, end in spans:
            reached = 0
            for start in starts:
                if start >= reached:
                    content = os.pread(memory, end - start, start)
                    read.append((start, content))
                    reached = start + len(content)
    finally:
        os.close(memory)
    return read


def write_changes(address: int, before: bytes, after: bytes) -> None:
    """Writes the bytes that differ: others may have been changed here meanwhile."""
    if before == after:
        return
    assert address, "an argument was changed"
    old, new = (np.frombuffer(content, np.uint8) for content in (before, after))
    (changed,) = np.nonzero(old != new)
    memory = np.ctypeslib.as_array((ctypes.c_uint8 * len(before)).from_address(address))
    memory[changed] = new[changed]


def _packed(numbers: list[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}q", *numbers)
