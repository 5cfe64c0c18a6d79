"""Requests of one tenant in one class, by when their first token is due.

The earliest deadline goes first among those that can still be met. A request that is late, for its deadline has passed
or cannot be met any more, stands behind them in the order of arrival, and so does one without a deadline: what is lost
makes nobody else late. Once late, always late. So that the late do not starve, some of the starts are theirs.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduler_svc.core.queue.order import by_deadline, inner_order
from scheduler_svc.core.queue.sorted_queue import ArrivalQueue, Key, SortedQueue
from scheduler_svc.core.queue.ttft_estimator import TtftEstimator
from scheduler_svc.core.request import Request, RequestStatus

TURN = 8
"""Starts of which one is of a late request, while there are some."""


class Turns:
    """Counts the starts of those among whom the late have their turn: all of a class, or of one tenant in it where
    tenants share."""

    def __init__(self) -> None:
        self._late = ArrivalQueue()
        self._num_started = 0
        """Since the last start of a late one, while some waited."""
        self._is_passed_on = False
        self._heir: Request | None = None
        """Whose turn it is when it was passed on; None: nobody's."""

    def push(self, request: Request) -> None:
        """`request` is late from now on."""
        self._late.push(request)

    def left(self, request: Request) -> None:
        """`request` does not wait any more: it was cancelled, or its status says that it was taken."""
        if request.entry.is_late:
            self._late.remove(request)
        if request is self._heir:
            self.reclaim()
        if request.status is not RequestStatus.WAITING:
            self._num_started = 0 if request.entry.is_late else self._num_started + 1
        if not len(self._late):
            self._num_started = 0

    def owed(self) -> Request | None:
        """The late request whose turn it is; None: it is nobody's."""
        if self._num_started < TURN - 1:
            return None
        return self._heir if self._is_passed_on else self._late.head()

    def pass_on(self, heir: Request | None) -> None:
        """Whoever came first may not start at present: the turn is another late request's, or nobody's."""
        self._is_passed_on, self._heir = True, heir

    def reclaim(self) -> None:
        """The turn is that of whoever came first again."""
        self._is_passed_on, self._heir = False, None


class DeadlineQueue:
    """Waiting requests of one account."""

    def __init__(self, ttft_estimator: TtftEstimator, turns: Turns) -> None:
        self._ttft_estimator, self._turns = ttft_estimator, turns
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
        self._turns.left(request)

    def oldest(self) -> Request | None:
        """The request that came first."""
        return self._all.head()

    def head(self) -> Request | None:
        """The request that goes first, turns aside."""
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
        if self._owed() is not None:
            return (-1.0,)
        return inner_order(head)

    def walk(self) -> Iterator[Request]:
        """All in order. Those may leave meanwhile that have been met. Nobody becomes late while the late are walked:
        all have been looked at by then."""
        owed = self._owed()
        if owed is not None:
            yield owed
        for request in self._due.walk():
            if self._ttft_estimator.can_be_met(request):
                yield request
            else:
                self._give_up(request)
        for request in self._late.walk():
            if request is not owed:
                yield request

    def _owed(self) -> Request | None:
        owed = self._turns.owed()
        return owed if owed is not None and owed is self._late.head() else None

    def _give_up(self, request: Request) -> None:
        self._due.remove(request)
        self._make_late(request)

    def _make_late(self, request: Request) -> None:
        request.entry.is_late = True
        self._late.push(request)
        self._turns.push(request)
