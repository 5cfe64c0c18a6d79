"""Requests of one tenant in one class, by when their first token is due.

The earliest deadline goes first among those that can still be met. A request that is late, for its deadline has passed
or cannot be met any more, stands behind them in the order of arrival, and so does one without a deadline: what is lost
makes nobody else late. Once late, always late. So that the late do not starve, some of the starts are theirs.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduler_svc.core.queue.sorted_queue import ArrivalQueue, Key, SortedQueue
from scheduler_svc.core.queue.ttft_estimator import TtftEstimator
from scheduler_svc.core.state.requests.order import by_deadline, inner_order
from scheduler_svc.core.state.requests.request import Request, RequestStatus

STARTS_PER_LATE = 8
"""Starts of which one is of a late request, while there are some."""


class LateQuota:
    """Which starts are for late requests, counted over all of a class, or over one tenant in it where tenants share."""

    def __init__(self) -> None:
        self._late = ArrivalQueue()
        self._num_started = 0
        """Since the last start of a late one, while some waited."""
        self._is_substituted = False
        self._substitute: Request | None = None
        """Who starts in the place of the late request that came first, if somebody does; None: nobody."""

    def push(self, request: Request) -> None:
        """`request` is late from now on."""
        self._late.push(request)

    def left(self, request: Request) -> None:
        """`request` does not wait any more: it was cancelled, or its status says that it was taken."""
        if request.entry.is_late:
            self._late.remove(request)
        if request is self._substitute:
            self.restore()
        if request.status is not RequestStatus.WAITING:
            self._num_started = 0 if request.entry.is_late else self._num_started + 1
        if not len(self._late):
            self._num_started = 0

    def next_late(self) -> Request | None:
        """The late request that is to start next; None: none is."""
        if self._num_started < STARTS_PER_LATE - 1:
            return None
        return self._substitute if self._is_substituted else self._late.head()

    def substitute_with(self, substitute: Request | None) -> None:
        """The late request that came first may not start at present: another one does in its place, or none."""
        self._is_substituted, self._substitute = True, substitute

    def restore(self) -> None:
        """The late request that came first is next again."""
        self._is_substituted, self._substitute = False, None


class DeadlineQueue:
    """Waiting requests of one account."""

    def __init__(self, ttft_estimator: TtftEstimator, late_quota: LateQuota) -> None:
        self._ttft_estimator, self._late_quota = ttft_estimator, late_quota
        self._all = ArrivalQueue()
        self._due = SortedQueue(by_deadline)
        """Requests whose deadline can be met, as far as they have been looked at."""
        self._late = ArrivalQueue()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Request]:
        return self._all.walk()

    def push(self, request: Request) -> None:
        """Adds `request` by its deadline."""
        self._all.push(request)
        if request.entry.deadline is None:
            self._make_late(request)
        else:
            self._due.push(request)

    def remove(self, request: Request) -> None:
        """Takes `request` out, wherever it stands."""
        self._all.remove(request)
        (self._late if request.entry.is_late else self._due).remove(request)
        self._late_quota.left(request)

    def oldest(self) -> Request | None:
        """The request that came first."""
        return self._all.head()

    def head(self) -> Request | None:
        """The request that goes first, but for a late one that is next."""
        while (request := self._due.head()) is not None and not self._ttft_estimator.can_be_met(request):
            self._give_up(request)
        return request or self._late.head()

    def oldest_late(self) -> Request | None:
        """The late request that came first."""
        return self._late.head()

    def key(self) -> Key:
        """Where the queue stands among others of its class. There is somebody in it."""
        head = self.head()
        assert head is not None
        if self._next_late() is not None:
            return (-1.0,)
        return inner_order(head)

    def walk(self) -> Iterator[Request]:
        """All in order. Those may leave meanwhile that have been met. Nobody becomes late while the late are walked:
        all have been looked at by then."""
        next_late = self._next_late()
        if next_late is not None:
            yield next_late
        for request in self._due.walk():
            if self._ttft_estimator.can_be_met(request):
                yield request
            else:
                self._give_up(request)
        for request in self._late.walk():
            if request is not next_late:
                yield request

    def _next_late(self) -> Request | None:
        next_late = self._late_quota.next_late()
        return next_late if next_late is not None and next_late is self._late.head() else None

    def _give_up(self, request: Request) -> None:
        self._due.remove(request)
        self._make_late(request)

    def _make_late(self, request: Request) -> None:
        request.entry.is_late = True
        self._late.push(request)
        self._late_quota.push(request)
