"""The waiting requests of one tenant in one class."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import TYPE_CHECKING

from scheduler_svc.core.policy.tenants import Tenant

if TYPE_CHECKING:
    from scheduler_svc.core.request import Request

Key = float | tuple[int, int]
"""Who goes first: what the account has had, or when its first request came."""


class ArrivalQueue:
    """Requests in the order of arrival. One that leaves the middle is skipped when it is met. Nothing is moved but by
    `push`, so a walk may go on while requests leave."""

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._start = 0
        self._gone: set[int] = set()
        """`id()` of requests that were removed and still stand behind `_start`."""

    def __len__(self) -> int:
        return len(self._requests) - self._start - len(self._gone)

    def push(self, request: Request) -> None:
        """Adds `request` by its arrival, nearly always at the end."""
        if self._start > 64 and 2 * self._start > len(self._requests):
            del self._requests[: self._start]
            self._start = 0
        last = self._requests[-1] if len(self._requests) > self._start else None
        if last is not None and request.arrival < last.arrival:
            insort(self._requests, request, lo=self._start, key=lambda other: other.arrival)
        else:
            self._requests.append(request)

    def head(self) -> Request | None:
        """The request that came first."""
        while self._start < len(self._requests):
            request = self._requests[self._start]
            if id(request) not in self._gone:
                return request
            self._gone.remove(id(request))
            self._start += 1
        return None

    def remove(self, request: Request) -> None:
        """Takes `request` out, wherever it stands."""
        self._gone.add(id(request))
        self.head()

    def walk(self) -> Iterator[Request]:
        """All in order. Those may leave meanwhile that have been met."""
        index = self._start
        while (index := max(index, self._start)) < len(
            self._requests
        ):  # `_gone` knows nothing before `_start`
            request = self._requests[index]
            index += 1
            if id(request) not in self._gone:
                yield request


class Account:
    """One tenant in one class of one model: its waiting requests, and its place among the others."""

    def __init__(self, rank: int, tenant: Tenant, index: int) -> None:
        self.rank = rank
        self.tenant = tenant
        self.index = index
        """In the ledger."""
        self.requests = ArrivalQueue()
        self.num_running = 0
        """Requests placed on workers."""
        self.version = 0
        """Only the entry of a heap with this number counts."""
        self.aged: tuple[int, tuple[int, int]] | None = None
        """Its entry among the aged accounts: (level, arrival of its first request)."""
        self.ages_at: float | None = None
        """When its first request rises by a level."""

    @property
    def is_idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return not self.num_running and not len(self.requests)
