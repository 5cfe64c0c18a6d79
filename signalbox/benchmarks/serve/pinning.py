"""Gives one service of a ring a core of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from signalbox.errors import InvalidRequestError


@contextmanager
def core_for_one(field: str) -> Iterator[int]:
    """The first core, which this process and what it starts meanwhile leave alone. Raises InvalidRequestError, which
    names `field`, where that cannot be had."""
    if not hasattr(os, "sched_setaffinity") or len(cores := os.sched_getaffinity(0)) < 2:
        raise InvalidRequestError("a core for the frontend alone needs Linux and two cores", field=field)
    first = min(cores)
    os.sched_setaffinity(0, cores - {first})
    try:
        yield first
    finally:
        os.sched_setaffinity(0, cores)


def move(pid: int, core: int) -> None:
    """Moves a process with all its threads."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})
