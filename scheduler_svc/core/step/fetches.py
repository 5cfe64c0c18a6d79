"""Fetches for a request that is about to start, from the first source that has something: a disk (DT3), another
worker's cache (PB2), the host tier (X4)."""

from __future__ import annotations

from typing import Any, NamedTuple

from scheduler_svc.core.state.groups.prefix import Prefix
from scheduler_svc.core.state.part import Source
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker


class Fetch(NamedTuple):
    """A source and its plan for one request."""

    source: Source
    plan: Any


def find_fetch(
    worker: Worker, request: Request, prefix: Prefix, needs: list[int], now: float
) -> Fetch | None:
    """What is to bring blocks to `request`, which would start with `prefix`; None: no source has any. `needs`: see
    `Source.find`."""
    for source in worker.parts.sources:
        plan = source.find(request, prefix, needs, now)
        if plan is not None:
            return Fetch(source, plan)
    return None


def begin_fetch(fetch: Fetch, request: Request, needs: list[int], step: StepDecision, now: float) -> None:
    """Orders `fetch` with `step`. If the step has begun another one that excludes it, `request` is looked at again with
    the next step."""
    if fetch.source.may_fetch(step):
        fetch.source.fetch(request, fetch.plan, needs, step, now)
