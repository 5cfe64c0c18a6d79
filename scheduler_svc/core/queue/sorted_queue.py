"""Waiting requests in an order that does not change."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator

from scheduler_svc.core.state.requests.request import Request

Key = float | tuple[float, ...]
"""Who goes first: whose key is less."""


class SortedQueue:
    """Requests by a key that each of them keeps. One that leaves the middle is skipped when it is met. Nothing is moved
    but by `push`, so a walk may go on while requests leave."""

    def __init__(self, key: Callable[[Request], tuple[float, ...]]) -> None:
        self._key = key
        self._requests: list[Request] = []
        self._start = 0
        self._gone: set[int] = set()
        """`id()` of requests that were removed and still stand behind `_start`."""

    def __len__(self) -> int:
        return len(self._requests) - self._start - len(self._gone)

    def push(self, request: Request) -> None:
        """Adds `request` where it belongs, nearly always near the end."""
        num_gone = self._start + len(self._gone)
        if num_gone > 64 and 2 * num_gone > len(self._requests):
            self._requests = list(self.walk())
            self._start = 0
            self._gone.clear()
        last = self._requests[-1] if len(self._requests) > self._start else None
        if last is not None and self._key(request) < self._key(last):
            insort(self._requests, request, lo=self._start, key=self._key)
        else:
            self._requests.append(request)

    def head(self) -> Request | None:
        """The request that goes first."""
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


class ArrivalQueue(SortedQueue):
    """Whoever came first goes first."""

    def __init__(self) -> None:
        super().__init__(lambda request: request.arrival)

    def __iter__(self) -> Iterator[Request]:
        return self.walk()

    def oldest(self) -> Request | None:
        """The request that came first."""
        return self.head()

    def key(self) -> Key:
        """Where the queue stands among others of its class. There is somebody in it."""
        head = self.head()
        assert head is not None
        return head.arrival
