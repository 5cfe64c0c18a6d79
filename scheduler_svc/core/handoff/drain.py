"""Which requests a worker that drains hands over, and to whom (HO14)."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_svc.core.config import SchedulerConfig
from scheduler_svc.core.handoff.desk import HandoffDesk, num_open
from scheduler_svc.core.handoff.eligibility import same_layout
from scheduler_svc.core.request import Request
from scheduler_svc.core.slots.worker import Worker

MAX_LOOKED_AT = 64
"""Requests of one worker that are looked at in one go."""


def hand_over_drained(
    config: SchedulerConfig, workers: Mapping[str, Worker], desk: HandoffDesk, now: float
) -> None:
    """Begins what draining workers can hand over now: most output first, a few at a time."""
    for worker in workers.values():
        if worker.draining and worker.attached and config.max_handoffs_per_worker:
            _hand_over(worker, config, workers, desk, now)


def _hand_over(
    source: Worker, config: SchedulerConfig, workers: Mapping[str, Worker], desk: HandoffDesk, now: float
) -> None:
    room = config.max_handoffs_per_worker - len(source.handoffs.exports)
    if room <= 0:
        return
    targets = [other for other in workers.values() if same_layout(source, other) and other.takes_new]
    if not targets:
        return
    for request in candidates(source, desk, now)[:MAX_LOOKED_AT]:
        target = best_target(request, source, targets, desk, now)
        if target is not None:
            desk.begin(request, source, target, now)
            room -= 1
            if not room:
                return


def candidates(source: Worker, desk: HandoffDesk, now: float) -> list[Request]:
    """What could be handed over, most output first."""
    table = source.table
    able = [
        request
        for request in source.requests()
        if now >= request.history.no_handoff_before and not desk.why_request_stays(request, source)
    ]
    return sorted(able, key=lambda request: (-int(table.num_output[request.slot]), request.order))


def best_target(
    request: Request, source: Worker, targets: list[Worker], desk: HandoffDesk, now: float
) -> Worker | None:
    """Who has room for it: the one with the most free places, of those that get less than their share of the source's
    hand-offs now, if there are any (HO21); None: nobody has room."""
    most = desk.most_per_pair
    able = [target for target in targets if desk.may_go(request, source, target, now)]
    return max(
        able,
        key=lambda each: (num_open(source, each) < most, each.limits.max_num_seqs - each.num_active),
        default=None,
    )
