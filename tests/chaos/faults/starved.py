"""A service gets no more memory, no more descriptors or no room on its disk, among moves."""

from __future__ import annotations

import asyncio
import resource
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.chaos.faults.among_moves import MOVING, among_moves
from tests.chaos.faults.fault import Act, Fault
from tests.chaos.faults.moves import draw
from tests.chaos.faults.schedulers import all_back
from tests.chaos.ring import Ring

STARVED_S = 6.0
MARGINS = (0, 1 << 20, 16 << 20)
"""Bytes that are left of memory, by repetition: a stack of a thread needs 8 MiB."""
DISK = replace(
    MOVING,
    worker_flags=(
        *MOVING.worker_flags,
        "--num-blocks=128",
        "--num-host-blocks=32",
        "--kv-disk={folder}/kv",
        "--kv-disk-bytes=16MiB",
    ),
)
"""All workers share a directory, which takes what their small caches have to evict."""
VANISH_S = 0.2


def _memory_of(pid: int, turn: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    return pages * resource.getpagesize() + MARGINS[turn % len(MARGINS)]


def _descriptors_of(pid: int, turn: int) -> int:
    return max(int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir()) + 1


def _no_bytes(pid: int, turn: int) -> int:
    """No file may become longer; the disk is full, with EFBIG for ENOSPC."""
    return 0


def _starve(kind: str, what: int, limit: Callable[[int, int], int]) -> Act:
    """The process that is there has no more than it has; one that is started in its place has."""

    async def strike(ring: Ring, turn: int) -> None:
        (name,) = draw(ring.shape.by_kind, [kind], turn)
        pid = ring.services[name].pid
        _, most = before = resource.prlimit(pid, what)
        resource.prlimit(pid, what, (limit(pid, turn), most))
        await asyncio.sleep(STARVED_S)
        if ring.services[name].runs:
            resource.prlimit(pid, what, before)

    return among_moves(strike)


async def _vanish(ring: Ring, turn: int) -> None:
    """Whatever the disk tier has written is deleted, again and again, with its directories every other turn."""
    num_gone = 0
    for _ in range(int(STARVED_S / VANISH_S)):
        for found in (ring.folder / "kv").glob("*" if turn % 2 else "*/*"):
            num_gone += 1
            shutil.rmtree(found, ignore_errors=True) if found.is_dir() else found.unlink(missing_ok=True)
        await asyncio.sleep(VANISH_S)
    assert num_gone, "nothing was written"


STARVED_FAULTS = (
    *(
        Fault(f"no more {what} for a {kind}", _starve(kind, *limit), heal=all_back, window_s=5, shape=MOVING)
        for what, limit in {
            "memory": (resource.RLIMIT_AS, _memory_of),
            "descriptors": (resource.RLIMIT_NOFILE, _descriptors_of),
        }.items()
        for kind in ("worker", "scheduler", "frontend")
    ),
    *(
        Fault(f"disk tier: {name}", act, heal=all_back, window_s=5, shape=DISK)
        for name, act in (
            ("no room", _starve("worker", resource.RLIMIT_FSIZE, _no_bytes)),
            ("files vanish", among_moves(_vanish)),
        )
    ),
)
