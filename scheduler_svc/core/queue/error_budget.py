"""How fast a class uses up its error budget: the share of first tokens that may come later than promised.

A request counts as late as soon as its time is over, not when its token comes at last: a class that gets nothing at all
burns its budget too. Burn rates and their windows are as in "The Site Reliability Workbook", chapter 5.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from scheduler_svc.core.state.requests.request import Request, RequestKey

NUM_BUCKETS = 30
"""Buckets of a window: what is older than the window leaves it in so many parts."""


@dataclass
class Bucket:
    """What came in one part of the window."""

    number: int
    num_answered: int = 0
    num_late: int = 0


class ErrorBudget:
    """Outcomes of the last `window_s` seconds. A request passes `watch`, then `answered` or `forget`."""

    def __init__(self, ttft_s: float, share: float, window_s: float) -> None:
        self._ttft_s, self._share = ttft_s, share
        self._bucket_s = window_s / NUM_BUCKETS
        self._awaited: dict[RequestKey, tuple[float, Request]] = {}
        """The requests without a first token, by when it is promised, soonest first."""
        self._buckets: deque[Bucket] = deque()

    def watch(self, request: Request, now: float) -> None:
        """A request has come: its first token is awaited."""
        self._awaited[request.key] = (now + self._ttft_s, request)

    def answered(self, request: Request, now: float) -> None:
        """Its first token has been reported."""
        until, _ = self._awaited.pop(request.key, (None, None))
        if until is not None:
            self._count(is_late=now > until, now=now)

    def forget(self, request: Request) -> None:
        """Forgets a request that ended without a first token: that is nobody's fault."""
        self._awaited.pop(request.key, None)

    def expire(self, now: float) -> None:
        """Counts those whose time is over. Costs what it counts."""
        while self._awaited:
            key, (until, request) = next(iter(self._awaited.items()))
            if until >= now:
                break
            del self._awaited[key]
            if not _is_kept_from_starting(request, now):
                self._count(is_late=True, now=now)

    def reset(self) -> None:
        """Forgets the outcomes so far."""
        self._buckets.clear()

    def num_late(self, now: float) -> int:
        """How many first tokens of the window came late."""
        self._drop_old(now)
        return sum(bucket.num_late for bucket in self._buckets)

    def burn(self, now: float) -> float:
        """Late requests of the window against those that may be late: 1 uses the budget up exactly."""
        late = self.num_late(now)
        count = late + sum(bucket.num_answered for bucket in self._buckets)
        return late / count / self._share if count else 0.0

    def _count(self, *, is_late: bool, now: float) -> None:
        number = int(now / self._bucket_s)
        if not self._buckets or self._buckets[-1].number != number:
            self._drop_old(now)
            self._buckets.append(Bucket(number))
        self._buckets[-1].num_late += is_late
        self._buckets[-1].num_answered += not is_late

    def _drop_old(self, now: float) -> None:
        oldest = int(now / self._bucket_s) - NUM_BUCKETS
        while self._buckets and self._buckets[0].number <= oldest:
            self._buckets.popleft()


def _is_kept_from_starting(request: Request, now: float) -> bool:
    """It is not for want of room that the request has no token: its client, safe mode or a limit of its tenant's keeps
    it."""
    account = request.entry.account
    at_limit = (
        request.worker_id is None and account is not None and account.tenant.throttled_by(now) is not None
    )
    return request.rests or at_limit
