"""Which workers compute which prompts (PD2)."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_svc.core.slots.worker import Worker
from signalbox.protocol.enums import WorkerRole


def has_roles(worker: Worker, others: Sequence[Worker]) -> bool:
    """One of them is there to decode."""
    return any(each.role is WorkerRole.DECODE for each in (worker, *others))


def rivals_for_prompt(
    worker: Worker, others: Sequence[Worker], able: Sequence[Worker]
) -> Sequence[Worker] | None:
    """Workers of `others` that `worker` competes with for a prompt; None: it leaves the prompt to them. `able`: all
    that have room for it now."""
    if all(each.role is WorkerRole.DECODE for each in able):
        return others
    if worker.role is WorkerRole.DECODE:
        return None
    return [other for other in others if other.role is not WorkerRole.DECODE]
