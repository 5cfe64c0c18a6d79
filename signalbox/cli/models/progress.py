"""How far something is, on one line of a terminal."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TextIO

from signalbox.cli.models.cache import megabytes


class Progress:
    """Writes to stderr. Where that is no terminal, a step is told once, when it begins."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._step = ""
        self._shown = ""

    def step(self, name: str) -> None:
        """Begins a step, and ends the one before."""
        self.end()
        self._step = name
        self._write(name if self._stream.isatty() else f"{name}\n")

    def show(self, done_bytes: int, total_bytes: int) -> None:
        """How much of the step is done."""
        if not self._stream.isatty():
            return
        shown = f"{self._step}: {megabytes(done_bytes)} of {megabytes(total_bytes)} MB"
        if shown != self._shown:
            self._shown = shown
            self._write(f"\r{shown}\033[K")

    def end(self) -> None:
        """Leaves the line of the last step, if there is one."""
        if self._step and self._stream.isatty():
            self._write("\n")
        self._step = self._shown = ""

    def _write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)
            self._stream.flush()
