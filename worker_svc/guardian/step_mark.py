"""The step that a worker executes, and its limit, in memory that its guardian sees.

A report is on its way for a moment when the next step begins: of a worker that crashes just then, the scheduler hears
less than it has done, and would suspect the rows of the step before. And a step that hangs may hold up every thread.
"""

from __future__ import annotations

import mmap
import struct
from typing import NamedTuple

from signalbox.protocol.step_limits import COMPILE_S

_NUMBERS = struct.Struct("@QQQ")
_COMPILE_MS = int(COMPILE_S * 1e3)


class Turn(NamedTuple):
    """The oldest step that has not ended, as somebody else sees it."""

    step_id: int
    """0: none runs."""
    limit_ms: int
    """How long it may run."""
    compiles: bool
    """It has a kernel compiled, or a graph captured (U7)."""


class StepMark:
    """Three numbers, shared with every process that is forked later. One thread sets them."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, _NUMBERS.size)

    def set(self, step_id: int, limit_ms: int) -> None:
        """The step is the oldest that has not ended from now on; `limit_ms` 0: it has ended, and none runs."""
        _NUMBERS.pack_into(self._page, 0, step_id, limit_ms, 0)

    def compiles(self) -> None:
        """The step has a kernel compiled, or a graph captured: it takes its time."""
        step_id, limit_ms, _ = _NUMBERS.unpack_from(self._page)
        if limit_ms:
            _NUMBERS.pack_into(self._page, 0, step_id, max(limit_ms, _COMPILE_MS), 1)

    def read(self) -> int:
        """The step that was set last; 0: none."""
        return int(_NUMBERS.unpack_from(self._page)[0])

    @property
    def turn(self) -> Turn:
        """The step that runs, and its limit. Any thread or process may read it."""
        step_id, limit_ms, compiles = _NUMBERS.unpack_from(self._page)
        return Turn(step_id if limit_ms else 0, limit_ms, bool(compiles))
