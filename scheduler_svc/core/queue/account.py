"""The waiting requests of one tenant in one class."""

from __future__ import annotations

from scheduler_svc.core.queue.deadline_queue import DeadlineQueue
from scheduler_svc.core.queue.sorted_queue import ArrivalQueue
from scheduler_svc.core.queue.tenants import Tenant


class Account:
    """One tenant in one class of one model: its waiting requests, and its place among the others."""

    def __init__(
        self, priority: int, tenant: Tenant, index: int, requests: ArrivalQueue | DeadlineQueue
    ) -> None:
        self.priority = priority
        self.tenant = tenant
        self.index = index
        """Index of the account in the ledger."""
        self.requests = requests
        self.num_running = 0
        """How many of its requests are placed on workers."""
        self.version = 0
        """Only the entry of a heap with this number counts."""
        self.aged: tuple[int, tuple[int, int]] | None = None
        """Its entry among the aged accounts: (level, arrival of its oldest request)."""
        self.ages_at: float | None = None
        """When its oldest request rises by a level."""

    @property
    def is_idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return not self.num_running and not len(self.requests)
