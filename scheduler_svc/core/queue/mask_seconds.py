"""What the automata of each tenant's forms have worked."""

from __future__ import annotations

MAX_TENANTS = 100
"""Tenants that are counted by name; what others use is counted together."""
OTHER = "other"


class MaskSeconds:
    """Seconds by tenant since the start, whether the order depends on tenants or not."""

    def __init__(self, max_tenants: int = MAX_TENANTS) -> None:
        self.by_tenant: dict[str, float] = {}
        self._max_tenants = max_tenants

    def add(self, tenant: str, work_us: int) -> None:
        """Counts work for a tenant; for all others together once there are too many."""
        if tenant not in self.by_tenant and len(self.by_tenant) >= self._max_tenants:
            tenant = OTHER
        self.by_tenant[tenant] = self.by_tenant.get(tenant, 0.0) + work_us / 1e6
