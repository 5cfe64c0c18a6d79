"""A wall clock of one service, which can be set while it runs: a library ahead of its own ones (clock.c)."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
COMPILER = shutil.which("cc")


def make_library(folder: Path) -> Path:
    """Compiles the library, once a folder."""
    library = folder / "clock.so"
    if not library.exists():
        assert COMPILER, "a wall clock that can be set needs a C compiler, by the name cc"
        command = [
            COMPILER,
            "-shared",
            "-fPIC",
            "-O2",
            "-Wall",
            "-Werror",
            "-o",
            str(library),
            str(SOURCE),
            "-ldl",
        ]
        subprocess.run(command, check=True)
    return library


class Clock:
    """What `time.time()`, `datetime.now()` and their like say in one service. Its monotonic clock and the times of
    files are the kernel's."""

    def __init__(self, folder: Path, name: str) -> None:
        """folder: where files go; the library is shared there."""
        self._file = folder / f"{name}.clock"
        self._library = make_library(folder)
        self._file.write_bytes(_content(0))

    def set(self, ahead_s: int) -> None:
        """Ahead of the machine's clock by so much, at once; negative: behind it."""
        with self._file.open("r+b", buffering=0) as file:
            file.write(_content(ahead_s))

    @property
    def environment(self) -> dict[str, str]:
        """Of the service."""
        return {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._file)}


def _content(ahead_s: int) -> bytes:
    return struct.pack("=q", ahead_s)
