"""The number of the step that a worker executes, in memory that its guardian sees.

A report is on its way for a moment when the next step begins: of a worker that crashes just then, the scheduler hears
less than it has done, and would suspect the rows of the step before.
"""

from __future__ import annotations

import mmap
import struct

_NUMBER = struct.Struct("@Q")


class StepMark:
    """One number, shared with every process that is forked later. One thread sets it."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, _NUMBER.size)

    def set(self, step_id: int) -> None:
        """The step is the oldest that has not ended from now on."""
        _NUMBER.pack_into(self._page, 0, step_id)

    def read(self) -> int:
        """The step that was set last; 0: none."""
        return int(_NUMBER.unpack_from(self._page)[0])
