"""What a request that is about to start waits for, because it comes sooner than it is computed: from a disk (DT3), else
from another worker's cache (PB2)."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_svc.core.parts.disk.loads import find_load, load_aside
from scheduler_svc.core.state.groups.prefix import Prefix
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker


def is_elsewhere(worker: Worker, request: Request, prefix: Prefix, now: float) -> bool:
    """A disk, or another worker, has more of the prompt of `request`, which would start with `prefix`."""
    if find_load(worker, request, prefix) is not None:
        return True
    return worker.pulls.find(worker, request, prefix, now) is not None


def bring_from_elsewhere(
    worker: Worker, request: Request, prefix: Prefix, needs: Sequence[int], step: StepDecision, now: float
) -> None:
    """Orders with `step` what there is (`is_elsewhere`). A step does one of the two, and begins one pull at most:
    `request` is looked at again with the next one then. `needs`: see `bring_aside`."""
    load = find_load(worker, request, prefix)
    if load is not None:
        if not step.begins_pull:
            load_aside(worker, request, load, needs, step)
        return
    plan, puller = worker.pulls.find(worker, request, prefix, now), worker.pulls.puller
    if plan is not None and puller is not None and step.loads is None:
        puller.begin(worker, request, plan, needs, step, now)
