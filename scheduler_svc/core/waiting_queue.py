"""Requests that wait for a worker, first come first served."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator

from scheduler_svc.core.request import Request


class WaitingQueue:
    """Requests of one model in their order. A request that leaves the middle is skipped when it is met."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()
        self._gone: set[int] = set()
        """`id()` of requests that were removed and still stand in the deque."""

    def __len__(self) -> int:
        return len(self._requests) - len(self._gone)

    def __iter__(self) -> Iterator[Request]:
        return (request for request in self._requests if id(request) not in self._gone)

    def push(self, request: Request) -> None:
        """Adds `request` by its arrival, nearly always at the end."""
        if self._requests and request.order < self._requests[-1].order:
            insort(self._requests, request, key=lambda other: other.order)
        else:
            self._requests.append(request)

    def head(self) -> Request | None:
        """The next request, left in place."""
        while self._requests and id(self._requests[0]) in self._gone:
            self._gone.remove(id(self._requests.popleft()))
        return self._requests[0] if self._requests else None

    def remove(self, request: Request) -> None:
        """Takes `request` out, wherever it stands."""
        if self.head() is request:
            self._requests.popleft()
        else:
            self._gone.add(id(request))
