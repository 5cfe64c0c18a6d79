"""The host tier as a source: copies that would hold up a step run beside the steps instead (X4)."""

from __future__ import annotations

from typing import NamedTuple

from scheduler_svc.core.parts.fetch.side_copies import copy_aside, count_copies
from scheduler_svc.core.state.groups.prefix import Prefix
from scheduler_svc.core.state.part import Source
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker


class HostCopies(NamedTuple):
    """Copies for one start."""

    prefix: Prefix
    """What the request starts with."""
    num_copies: int


class HostSource(Source):
    """Brings what a start has in the host tier, and saves what it evicts, where that takes many copies."""

    name = "host"
    rank = 60

    def __init__(self, worker: Worker, least_copies: int) -> None:
        """least_copies: a start that takes fewer copies makes them within its step."""
        self._worker, self._least = worker, least_copies

    def find(self, request: Request, prefix: Prefix, needs: list[int], now: float) -> HostCopies | None:
        """As `Source.find`. A request that has waited for a fence since it last started does not wait again."""
        if request.history.fence is not None:
            return None
        num_copies = count_copies(self._worker, prefix, needs)
        return HostCopies(prefix, num_copies) if num_copies >= self._least else None

    def may_fetch(self, step: StepDecision) -> bool:
        """As `Source.may_fetch`: its copies have a fence of their own (`StepDecision.fence`)."""
        return True

    def fetch(
        self, request: Request, plan: HostCopies, needs: list[int], step: StepDecision, now: float
    ) -> None:
        """As `Source.fetch`."""
        worker = self._worker
        copy_aside(worker, request, plan.prefix, needs, step)
        worker.stats.num_host_hit_tokens += plan.prefix.num_from_host * worker.table.block_size

    def explain(self, plan: HostCopies) -> str:
        """As `Source.explain`."""
        name = self._worker.info.worker_id
        return (
            f"{plan.num_copies} blocks are to be copied between {name} and its host tier before it starts "
            f"(side_copy_blocks {self._least})"
        )
