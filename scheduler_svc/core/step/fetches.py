"""Fetches for a request that is about to start, from the first source that has something: a disk (DT3), another
worker's cache (PB2), the host tier (X4)."""

from __future__ import annotations

from typing import Any

from scheduler_svc.core.state.groups.prefix import Prefix
from scheduler_svc.core.state.part import Source
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker


def find_fetch(
    worker: Worker, request: Request, prefix: Prefix, needs: list[int], now: float
) -> tuple[Source, Any] | None:
    """The source that is to bring blocks to `request`, which would start with `prefix`, and its plan; None: no source
    has any. `needs`: see `Source.find`."""
    for source in worker.parts.sources:
        plan = source.find(request, prefix, needs, now)
        if plan is not None:
            return source, plan
    return None


def begin_fetch(
    worker: Worker, request: Request, prefix: Prefix, needs: list[int], step: StepDecision, now: float
) -> None:
    """Orders with `step` what `find_fetch` finds. If the step has begun a fetch beside which this one must not be,
    `request` is looked at again with the next step."""
    found = find_fetch(worker, request, prefix, needs, now)
    if found is not None:
        source, plan = found
        if step.fetch is None or step.fetch.source not in source.excludes:
            source.fetch(request, plan, needs, step, now)
