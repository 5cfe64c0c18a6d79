"""What it costs to move a request, and what it has left to gain by it."""

from __future__ import annotations

from scheduler_svc.core.handoff.blocks import blocks_wanted
from scheduler_svc.core.slots.worker import Worker

FROZEN_STEPS = 2
"""Steps of its source for which nobody runs a request that is handed over, about."""


def num_left(worker: Worker, slot: int) -> int:
    """Output tokens that the request of `slot` may still have."""
    table = worker.table
    return int(table.limit[slot] - table.num_prompt[slot] - table.num_output[slot])


def copy_s(worker: Worker, slot: int, blocks_per_s: float) -> float:
    """Seconds in which the blocks of `slot`, of all groups, are copied."""
    wanted = blocks_wanted(worker, slot, ahead=False)
    return sum(end - first for first, end in zip(wanted.firsts, wanted.ends, strict=True)) / blocks_per_s


def price_s(worker: Worker, slot: int, blocks_per_s: float) -> float:
    """Seconds that a hand-off of `slot`, which runs, costs: the copy, which takes from others what it reads and writes
    beside them, and those for which it is frozen."""
    return copy_s(worker, slot, blocks_per_s) + FROZEN_STEPS * worker.pacer.typical_s
