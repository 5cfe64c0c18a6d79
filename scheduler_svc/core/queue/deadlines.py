"""When first tokens are due, and how many came in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from scheduler_svc.core.state.requests.request import Request


class Deadlines:
    """Targets by priority number, in seconds from the submission, and what has become of them. A pooling request goes
    by the target of its priority like any other, and is not counted: it has no first token."""

    def __init__(self, targets: Mapping[int, float]) -> None:
        self.targets = targets
        self.now = 0.0
        """The time as last heard of, in seconds: about a second old at most."""
        self.met: Counter[int] = Counter()
        self.missed: Counter[int] = Counter()
        """Requests by priority number: late ones that ended without a token included."""

    def set(self, request: Request, now: float) -> None:
        """`request` waits from now on."""
        self.now = now
        target = self.targets.get(request.priority)
        request.entry.deadline = None if target is None else now + target

    def first_token(self, request: Request, now: float) -> None:
        """The first token of `request` has come."""
        deadline = request.entry.deadline
        if deadline is not None and not request.entry.is_counted:
            self._count(request, self.met if now <= deadline else self.missed)

    def ended(self, request: Request) -> None:
        """Nothing more comes of `request`: if it has waited in vain, and too long, that is a deadline missed."""
        entry = request.entry
        has_token = entry.is_counted or request.num_prior_output_tokens
        if entry.deadline is None or has_token or request.is_pooling:
            return
        if entry.is_late or entry.deadline < self.now:
            self._count(request, self.missed)

    def _count(self, request: Request, results: Counter[int]) -> None:
        request.entry.is_counted = True
        results[request.priority] += 1
