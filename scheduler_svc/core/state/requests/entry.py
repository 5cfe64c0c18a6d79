"""What the queues keep of one request, from its submission to its end."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler_svc.core.state.requests.account import Account


@dataclass(slots=True)
class QueueEntry:
    """Its standing among others. Priorities are classes of the policy in force, lower first; 0 for all when the policy
    knows none."""

    priority: int = 0
    """The class that it came with: whom it may displace."""
    effective_priority: int = 0
    """`priority`, risen by what it has waited. It stays as it is while the request runs."""
    waits_since: float | None = None
    """Since when it has been waiting for a worker, or on one; None: it runs."""
    priority_at_wait: int = 0
    """`effective_priority` when it began to wait."""
    deadline: float | None = None
    """When its first token is due, in seconds of the scheduler's clock; None: there is no target for its priority."""
    is_late: bool = False
    """It stands behind those whose deadline can still be met: its own cannot, or it has none."""
    is_counted: bool = False
    """Whether its deadline was met has been counted."""
    num_cached_guess: int | None = None
    """Tokens of it that were cached when its deadline came near; None: nobody has looked."""
    account: Account | None = field(default=None, repr=False)
    """Whom its tokens are charged to; None: it was not assigned yet."""

    def begin_to_wait(self, now: float) -> None:
        """It waits from now on, in the class that it has by now."""
        self.waits_since, self.priority_at_wait = now, self.effective_priority
