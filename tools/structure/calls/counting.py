"""Counts the Python calls that a function makes in the files of some packages, and the workers that are counted on."""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from types import FrameType
from typing import NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Kind(Enum):
    """What a worker says of itself in its hello."""

    PLAIN = "plain"
    """Nothing beyond decode rows and a pool of blocks."""
    FEATURES = "features"
    """Windows, checkpoints, host tier, disk tier, hand-off, pulls and two lanes, none of which has any work."""
    DRAFTS = "drafts"
    """Draft tokens by prompt lookup, all of which are right."""


class Count(NamedTuple):
    """What one run of a piece of code called."""

    calls: int
    """Frames of the packages that were entered; each resumption of a coroutine or generator is one."""
    files: int
    """Files that these frames belong to."""
    changes: int
    """Calls that leave the file of the call before."""


class CallCounter:
    """Records the frames that are entered while it is active, if their module is in one of the packages.

    The code of a generated method (`__init__` of a dataclass) belongs to the module of its class.
    """

    def __init__(self, packages: Sequence[str], left_out: Sequence[str] = ()) -> None:
        """packages, left_out: dotted names; what is in one of `left_out` is not counted."""
        self._packages = tuple(f"{name}." for name in packages)
        self._left_out = tuple(f"{name}." for name in left_out)
        self._entered: list[str] = []

    def start(self) -> None:
        """Begins to record, in this thread."""
        self._entered = []
        sys.setprofile(self._on_event)

    def stop(self) -> Count:
        """Ends recording."""
        sys.setprofile(None)
        entered = self._entered
        changes = sum(before != after for before, after in itertools.pairwise(entered))
        return Count(len(entered), len(set(entered)), changes)

    def count(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> tuple[T, Count]:
        """What `work` returns, and its calls."""
        self.start()
        try:
            result = work(*args, **kwargs)
        finally:
            count = self.stop()
        return result, count

    def _on_event(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call":
            return
        module = frame.f_globals.get("__name__", "")
        path = f"{module}."
        if path.startswith(self._packages) and not path.startswith(self._left_out):
            self._entered.append(module)


def median(counts: Sequence[Count]) -> Count:
    """The median of each number. Raises StatisticsError when there are no counts."""
    return Count(*(int(statistics.median_low(column)) for column in zip(*counts, strict=True)))
