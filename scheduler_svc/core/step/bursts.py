"""Bursts: several steps in one message while all that runs decodes and nothing waits.

Two steps in flight cost a message each way for every token of a stream. Where a step takes a few milliseconds on a
machine that the services share with the model, these messages take a fifth of it. While nothing can change but counts,
the steps that would be sent one by one are sent together, and the worker reports them together. Each is a step like any
other, with a record and a report of its own.
"""

from __future__ import annotations

from scheduler_svc.core.state.worker import Worker

MOST_STEPS = 8
"""Steps of a burst at most."""


def is_steady(worker: Worker) -> bool:
    """All that the worker has decodes, one token in each step: the next step names nobody."""
    table = worker.table
    changes = table.settling or table.releasing or table.rest_changes or table.refused or table.held
    waiting = table.prefilling or table.preempted or table.prepared or table.displaced
    others = waiting or table.aside or worker.fences
    if not table.decode_tokens or table.has_drafts or changes or others:
        return False
    return not (worker.parts.ordering and worker.parts.has_orders)


def steps_behind(worker: Worker, burst_s: float) -> int:
    """Steps that may be sent behind the one that was just made, while the worker is steady: with it they take `burst_s`
    seconds, and a row at least can have a token in each. 0 where their blocks might not be there."""
    typical_s = worker.pacer.typical_s
    if not 0 < 2 * typical_s <= burst_s:
        return 0
    slots = worker.table.decode_slots
    if not len(slots):
        return 0
    most_tokens = int((worker.table.limit[slots] - worker.table.bound[slots]).max())
    num_steps = min(int(burst_s / typical_s), MOST_STEPS) - 1
    most_blocks = len(slots) * (1 + num_steps // worker.table.block_size)
    return max(min(num_steps, most_tokens), 0) if worker.num_available >= most_blocks else 0
