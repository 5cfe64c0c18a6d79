"""One tenant in one class of one model."""

from __future__ import annotations

from scheduler_svc.core.state.requests.tenants import Tenant


class Account:
    """Its place among the others. Its waiting requests are kept by a `WaitingAccount`: a request names its account."""

    def __init__(self, priority: int, tenant: Tenant, index: int) -> None:
        self.priority = priority
        self.tenant = tenant
        self.index = index
        """Index of the account in the ledger."""
        self.num_running = 0
        """How many of its requests are placed on workers."""
        self.version = 0
        """Only the entry of a heap with this number counts."""
        self.aged: tuple[int, tuple[int, int]] | None = None
        """Its entry among the aged accounts: (level, arrival of its oldest request)."""
        self.ages_at: float | None = None
        """When its oldest request rises by a level."""
