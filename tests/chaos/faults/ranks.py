"""A process of a busy worker that is several (RK) dies, crashes or stands still, while another such worker idles."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.chaos.faults.fault import Act, Fault
from tests.chaos.faults.workers import busy, have_one_idle, stop_one
from tests.chaos.ring import Ring, Shape

SHAPES = {
    "rank": Shape(worker_flags=("--tensor-parallel=2", "--threads=1")),
    "stage": Shape(worker_flags=("--pipeline-parallel=2", "--threads=1")),
}
"""What the second process has: a part of each layer, or layers of its own."""


def other_ranks(pid: int) -> list[int]:
    """Processes that rank 0, which has this id, has started."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == pid and b"worker_svc.ranks" in words:
            found.append(int(folder.name))
    return found


def _send(number: signal.Signals) -> Act:
    async def act(ring: Ring, turn: int) -> None:
        (rank,) = other_ranks(ring.services[busy(ring)].pid)
        os.kill(rank, number)

    return act


async def _ended(ring: Ring, turn: int) -> None:
    """The whole worker ends with its rank, by itself."""
    assert not ring.services[busy(ring)].runs, "it goes on without one of its ranks"


RANK_FAULTS = tuple(
    Fault(
        f"{what} {number.name}",
        _send(number),
        have_one_idle,
        _ended,
        begin=stop_one,
        window_s=16,
        shape=shape,
    )
    for what, shape in SHAPES.items()
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP)
)
