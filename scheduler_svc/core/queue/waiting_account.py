"""The waiting requests of one tenant in one class."""

from __future__ import annotations

from scheduler_svc.core.queue.deadline_queue import DeadlineQueue
from scheduler_svc.core.queue.sorted_queue import ArrivalQueue
from scheduler_svc.core.state.requests.account import Account
from scheduler_svc.core.state.requests.tenants import Tenant


class WaitingAccount(Account):
    """An account and its waiting requests."""

    def __init__(
        self, priority: int, tenant: Tenant, index: int, requests: ArrivalQueue | DeadlineQueue
    ) -> None:
        super().__init__(priority, tenant, index)
        self.requests = requests

    @property
    def is_idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return not self.num_running and not len(self.requests)
