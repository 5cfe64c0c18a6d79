"""Tenants: what each of them may have, and what it has now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TenantLimits:
    """What an operator says of a tenant. `None`: no limit."""

    weight: float = 1.0
    """Its share against other tenants of its class that wait at the same time."""
    max_running: int | None = None
    """Requests placed on workers, of all models and classes together."""
    max_queued: int | None = None
    """Requests that may wait; more are refused."""
    tokens_per_s: float | None = None
    """Computed prompt tokens and output tokens per second, in the long run; it may save up for one second."""
    highest_priority: int | None = None
    """Smallest priority number that its requests may carry; others are refused."""


@dataclass(eq=False)
class Tenant:
    """One tenant's limits and counts."""

    name: str
    limits: TenantLimits
    num_running: int = 0
    num_queued: int = 0
    tokens: float = 0.0
    """What the bucket holds; below 0 while the tenant has had more than it may."""
    filled_at: float = 0.0

    def spend(self, tokens: float) -> None:
        """Takes tokens that were computed for the tenant out of its bucket."""
        if self.limits.tokens_per_s is not None:
            self.tokens -= tokens

    def refill(self, now: float) -> None:
        """Lets the bucket fill for the time that has passed."""
        rate = self.limits.tokens_per_s
        if rate is not None:
            self.tokens = min(self.tokens + (now - self.filled_at) * rate, rate)
        self.filled_at = now

    def recovery_s(self) -> float:
        """Seconds until its bucket is no longer below 0; 0: it is not."""
        rate = self.limits.tokens_per_s
        return max(-self.tokens / rate, 1e-3) if rate is not None and self.tokens < 0 else 0.0

    def throttled_by(self, now: float) -> str | None:
        """The limit that keeps it from starting another request at present, in words; None: there is none."""
        most = self.limits.max_running
        if most is not None and self.num_running >= most:
            return f"max_running: tenant {self.name!r} has {self.num_running} of {most} requests running"
        if self.limits.tokens_per_s is not None:
            self.refill(now)
            if self.tokens < 0:
                return f"tokens_per_s: tenant {self.name!r} waits {self.recovery_s():.1f} s for tokens"
        return None


@dataclass
class Tenants:
    """All tenants that have been heard of, and the limits of those that are named."""

    default: TenantLimits = field(default_factory=TenantLimits)
    named: Mapping[str, TenantLimits] = field(default_factory=dict)
    _known: dict[str, Tenant] = field(default_factory=dict)

    @property
    def has_limits(self) -> bool:
        """Something but the default of everything was said: requests have to be told apart by tenant."""
        return bool(self.named) or self.default != TenantLimits()

    def of(self, name: str, now: float) -> Tenant:
        """The tenant of that name, with its bucket full when it is new."""
        tenant = self._known.get(name)
        if tenant is None:
            limits = self.named.get(name, self.default)
            tenant = Tenant(name, limits, tokens=limits.tokens_per_s or 0.0, filled_at=now)
            self._known[name] = tenant
        return tenant

    def forget(self, tenant: Tenant) -> None:
        """Drops what is kept of a tenant that has nothing here."""
        if not tenant.num_running and not tenant.num_queued and tenant.tokens >= 0:
            self._known.pop(tenant.name, None)

    def replace(self, default: TenantLimits, named: Mapping[str, TenantLimits]) -> None:
        """Puts other limits in force, for requests that wait or run too."""
        self.default, self.named = default, named
        for tenant in self._known.values():
            tenant.limits = named.get(tenant.name, default)
            tenant.tokens = min(tenant.tokens, tenant.limits.tokens_per_s or 0.0)
