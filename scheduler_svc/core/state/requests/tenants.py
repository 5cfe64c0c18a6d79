"""Tenants: what each of them may have, and what it has now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from signalbox.runtime.token_bucket import TokenBucket

PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class TenantLimits(BaseModel):
    """What an operator says of a tenant. `None`: no limit."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    weight: PositiveNumber = 1.0
    """Its share against other tenants of its class that wait at the same time."""
    max_running: PositiveInt | None = None
    """Requests placed on workers, of all models and classes together."""
    max_queued: PositiveInt | None = None
    """Requests that may wait; more are refused."""
    tokens_per_s: PositiveNumber | None = None
    """Computed prompt tokens and output tokens per second, in the long run; it may save up for one second."""
    best_priority: int | None = None
    """Lowest priority number that its requests may carry; lower runs first. Others are refused."""


@dataclass(eq=False)
class Tenant:
    """One tenant's limits and counts."""

    name: str
    limits: TenantLimits
    since: float
    """When the tenant was first heard of, in seconds."""
    num_running: int = 0
    num_queued: int = 0
    bucket: TokenBucket | None = None
    """Tokens that it may have; None: there is no limit."""

    def __post_init__(self) -> None:
        self.limit(self.limits)

    def limit(self, limits: TenantLimits) -> None:
        """Puts other limits in force; what was spent stays spent."""
        self.limits, rate = limits, limits.tokens_per_s
        if rate is None:
            self.bucket = None
        elif self.bucket is None:
            self.bucket = TokenBucket(rate, rate, self.since)
        else:
            self.bucket.resize(rate, rate)

    def spend(self, tokens: float) -> None:
        """Takes tokens that were computed for the tenant out of its bucket."""
        if self.bucket is not None:
            self.bucket.take(tokens)

    @property
    def is_in_debt(self) -> bool:
        """Whether the tenant has had more tokens than it may."""
        return self.bucket is not None and self.bucket.level < 0

    def recovery_s(self) -> float:
        """Seconds until it is no longer in debt; 0: it is not."""
        return max(self.bucket.wait_s(), 1e-3) if self.bucket is not None and self.is_in_debt else 0.0

    def throttled_by(self, now: float) -> str | None:
        """The limit that keeps it from starting another request at present, in words; None: there is none."""
        most = self.limits.max_running
        if most is not None and self.num_running >= most:
            return f"max_running: tenant {self.name!r} has {self.num_running} of {most} requests running"
        if self.bucket is not None:
            self.bucket.refill(now)
            if self.is_in_debt:
                return f"tokens_per_s: tenant {self.name!r} waits {self.recovery_s():.1f} s for tokens"
        return None


@dataclass
class Tenants:
    """All tenants that have been heard of, and the limits of those that are named."""

    default: TenantLimits = field(default_factory=TenantLimits)
    named: Mapping[str, TenantLimits] = field(default_factory=dict)
    has_limits: bool = field(init=False)
    """Something but the default of everything was said: requests have to be told apart by tenant."""
    _known: dict[str, Tenant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.has_limits = bool(self.named) or self.default != TenantLimits()

    def of(self, name: str, now: float) -> Tenant:
        """The tenant of that name, with its bucket full when it is new."""
        tenant = self._known.get(name)
        if tenant is None:
            tenant = self._known[name] = Tenant(name, self.named.get(name, self.default), now)
        return tenant

    def forget(self, tenant: Tenant) -> None:
        """Drops what is kept of a tenant that has nothing here."""
        if not tenant.num_running and not tenant.num_queued and not tenant.is_in_debt:
            self._known.pop(tenant.name, None)

    def replace(self, default: TenantLimits, named: Mapping[str, TenantLimits]) -> None:
        """Puts other limits in force, for requests that wait or run too."""
        self.default, self.named = default, named
        self.has_limits = bool(named) or default != TenantLimits()
        for tenant in self._known.values():
            tenant.limit(named.get(tenant.name, default))
