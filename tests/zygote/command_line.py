"""The command line and the name of this process in /proc, written anew."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from pathlib import Path

_PR_SET_NAME, _PR_SET_MM, _PR_SET_MM_MAP = 15, 35, 14
_LIBC = ctypes.CDLL(None)
_LIBC.sbrk.restype = ctypes.c_void_p
# Of proc(5), from 1.
_START_CODE, _END_CODE, _START_STACK, _START_DATA, _END_DATA, _START_BRK = 26, 27, 28, 45, 46, 47
_ARG_START, _ARG_END, _ENV_START, _ENV_END = 48, 49, 50, 51


class CommandLine:
    """The room for a command line that this process was started with, for it and its forks."""

    def __init__(self) -> None:
        self._fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()

    def _at(self, number: int) -> int:
        return int(self._fields[number - 3])

    def write(self, words: Sequence[str], name: bytes) -> None:
        """Where the kernel does not let the end be moved, empty words follow. ValueError: they are too long."""
        text = b"".join(os.fsencode(word) + b"\0" for word in words)
        start, room = self._at(_ARG_START), self._at(_ARG_END) - self._at(_ARG_START)
        if len(text) > room:
            raise ValueError(f"a command of {len(text)} bytes is longer than {room}")
        _LIBC.prctl(_PR_SET_NAME, name, 0, 0, 0)
        ctypes.memmove(start, text.ljust(room, b"\0"), room)
        names = (_START_CODE, _END_CODE, _START_DATA, _END_DATA, _START_BRK)
        addresses = [*map(self._at, names), _LIBC.sbrk(0), self._at(_START_STACK), start, start + len(text)]
        addresses += [self._at(_ENV_START), self._at(_ENV_END)]
        memory_map = struct.pack("<11QQIi", *addresses, 0, 0, -1)  # struct prctl_mm_map, the rest as it is
        buffer = ctypes.create_string_buffer(memory_map, len(memory_map))
        _LIBC.prctl(_PR_SET_MM, _PR_SET_MM_MAP, buffer, ctypes.c_ulong(len(memory_map)), 0)
