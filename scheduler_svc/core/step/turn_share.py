"""How much of a prompt is for one step where steps are on their way together (LA7)."""

from __future__ import annotations

from scheduler_svc.core.state.worker import Worker

PARTS = 4
"""Steps of each lane that a prompt is cut into, while it is long enough."""
LEAST_TOKENS = 64
"""Fewer cost a step as much: weights are read for all of them."""


def turn_share(worker: Worker, slot: int) -> int:
    """Most prompt tokens of the step that is made, in which `slot` is the first to have some: a part of all that is
    left of the prompts here. So the chunks of a prompt become smaller as their contexts grow, and the last ones, behind
    which stages have nothing to do, are small."""
    table = worker.table
    slots = {slot, *table.prefilling}
    num_left = sum(int(table.target[each]) - int(table.num_sent[each]) for each in slots)
    return max(-(-num_left // (PARTS * len(table.lanes))), LEAST_TOKENS)
