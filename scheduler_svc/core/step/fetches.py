"""Fetches for a request that is about to start: from the first source that brings blocks sooner than they are computed,
a disk (DT3) or another worker's cache (PB2)."""

from __future__ import annotations

from scheduler_svc.core.state.groups.prefix import Prefix
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker


def can_fetch(worker: Worker, request: Request, prefix: Prefix, now: float) -> bool:
    """A source of the worker has more of the prompt of `request`, which would start with `prefix`."""
    return any(source.find(request, prefix, now) is not None for source in worker.parts.sources)


def begin_fetch(
    worker: Worker, request: Request, prefix: Prefix, needs: list[int], step: StepDecision, now: float
) -> None:
    """Orders with `step` what the first source has (`can_fetch`). If the step has begun a fetch beside which this one
    must not be, `request` is looked at again with the next step. `needs`: see `Source.fetch`."""
    for source in worker.parts.sources:
        plan = source.find(request, prefix, now)
        if plan is not None:
            if step.fetch is None or step.fetch.source not in source.excludes:
                source.fetch(request, plan, needs, step, now)
            return
