"""The waiting requests that one worker may take in one step."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from scheduler_svc.core.state.requests.request import Request


class WaitingCursor:
    """Requests in the order of the policy, one at a time: looked at, then taken or passed over."""

    def __init__(
        self,
        requests: Iterator[Request],
        take: Callable[[Request], None] = lambda request: None,
        charge: Callable[[Request, int], None] = lambda request, num_cached_tokens: None,
        service_received: Callable[[Request], float] = lambda request: 0.0,
        version: int | None = None,
        suspects: frozenset[int] = frozenset(),
    ) -> None:
        self._requests = requests
        self._take = take
        self._next: Request | None = None
        self.charge = charge
        """Hears of requests that start for the first time, and how many of their tokens are cached."""
        self.service_received = service_received
        """What a request's tenant has had, in virtual tokens."""
        self.version = version
        """Another number whenever a request has come or gone; None: unknown."""
        self.suspects = suspects
        """Slots of the worker that run in steps of their own only."""

    def peek(self) -> Request | None:
        """The next request, left in place."""
        if self._next is None:
            self._next = next(self._requests, None)
        return self._next

    def skip(self) -> None:
        """The next request stays where it is and is not offered again in this step."""
        self._next = None

    def take(self) -> Request:
        """The next request becomes the worker's; its status says so already."""
        request = self._next
        assert request is not None
        self._next = None
        self._take(request)
        return request
