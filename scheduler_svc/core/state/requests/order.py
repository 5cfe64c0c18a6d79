"""Who goes first: what the queues keep sorted, as keys that can be compared one by one. The lesser one goes first."""

from __future__ import annotations

from collections.abc import Callable

from scheduler_svc.core.state.requests.request import Request

ServiceReceived = Callable[[Request], float]
"""What a request's tenant has had, in virtual tokens."""
Key = tuple[int, bool, float, int, tuple[float, ...]]
"""Level in force, whether it is one's own (the risen go before), what its tenant has had, the tenant's number, order
inside the tenant."""


def classes_risen(waits_since: float, now: float, aging_s: float) -> int:
    """Classes that a request rises by in the time that it waits."""
    return int((now - waits_since) / aging_s)


def inner_order(request: Request) -> tuple[float, ...]:
    """Inside a tenant, by deadline: the late stand behind, as far as they are known. Their quota apart."""
    return (1.0, *request.arrival) if request.entry.is_late else (0.0, *by_deadline(request))


def by_deadline(request: Request) -> tuple[float, ...]:
    """Among those that have a deadline."""
    assert request.entry.deadline is not None
    return (request.entry.deadline, *request.arrival)


def waiting_key(
    request: Request, level: int, service_received: ServiceReceived | None, *, has_deadlines: bool
) -> Key:
    """Among those that wait for a worker. `level`: the class that it has risen to; `service_received`: None when
    tenants do not share."""
    account = request.entry.account
    assert account is not None
    if level < request.entry.priority:
        return level, False, 0.0, 0, request.arrival
    inner = inner_order(request) if has_deadlines else request.arrival
    if service_received is None:
        return level, True, 0.0, 0, inner
    return level, True, service_received(request), account.index, inner


def resume_key(
    request: Request, service_received: ServiceReceived | None
) -> tuple[int, float, tuple[int, int]]:
    """Among those that a worker is to let start or go on, without looking at the waiting."""
    return (
        request.entry.effective_priority,
        service_received(request) if service_received else 0.0,
        request.arrival,
    )


def goes_before(
    request: Request, level: int, resumed: Request, service_received: ServiceReceived | None
) -> bool:
    """A waiting request of the class `level` starts before one that is to start or go on: its class is higher, or its
    tenant has had less."""
    theirs = resumed.entry
    if level != theirs.effective_priority or not service_received or request.entry.account is theirs.account:
        return level < theirs.effective_priority
    return service_received(request) <= service_received(resumed)
