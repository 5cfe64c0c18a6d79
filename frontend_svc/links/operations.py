"""What waits to be said to the scheduler, in order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass

from frontend_svc.clock import Clock, loop_time
from frontend_svc.links.orders import Action, Orders
from frontend_svc.links.submission import (
    Operation,
    make_cancel,
    make_check,
    make_finish,
    make_pause,
    make_reach,
    make_submit,
    make_unpause,
)
from frontend_svc.models import Worker
from frontend_svc.requests.sessions.session import Session
from signalbox.errors import InternalError, UnavailableError
from signalbox.protocol.enums import WorkerReach

log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 4 << 20
"""A message is closed when it has grown beyond this."""
MAX_MESSAGE_OPERATIONS = 512
"""Or when it has so many: to make them, and at the scheduler to take them, is one piece of work there and here, of some
20 to 30 ms."""


@dataclass(frozen=True, slots=True)
class _Submission:
    """An attempt to submit; the message is made when it is sent."""

    session: Session
    attempt: int
    since_s: float

    @property
    def is_stale(self) -> bool:
        return self.session.ended or self.session.attempt != self.attempt

    def make(self, now: float) -> Operation | None:
        """The message, unless it is stale. A session whose message cannot be made fails alone."""
        if self.is_stale:
            return None
        try:
            operation = make_submit(self.session, now)
        except Exception:
            log.exception("request %s cannot be submitted", self.session.request_id)
            self.session.fail(InternalError("the request could not be submitted"))
            return None
        self.session.submitted = True
        return operation


class OperationQueue:
    """The `Operations` of all sessions. Bounded by the number of open sessions, as each adds few.

    Attempts that end before they were sent are never sent, and neither is anything about them. While there is no
    scheduler, what the next hello will say is not queued.
    """

    def __init__(self, orders: Orders, clock: Clock = loop_time) -> None:
        """`orders` hears of what workers have to know, too."""
        self._orders = orders
        self._clock = clock
        self._entries: deque[_Submission | Operation] = deque()
        self._reach: dict[str, Operation] = {}
        """The newest of each worker process."""
        self._has_hello_to_come = True
        self._filled = asyncio.Event()

    def submit(self, session: Session) -> None:
        """Submits the session's current attempt."""
        self._entries.append(_Submission(session, session.attempt, self._clock()))
        self._filled.set()

    def cancel(self, session: Session) -> None:
        """Cancels the attempt: nobody wants the output any more."""
        if session.submitted:
            self._add(make_cancel(session))
            self._orders.say(session, Action.CANCEL)

    def finish(self, session: Session) -> None:
        """Ends the attempt: a stop string was found."""
        self._add(make_finish(session))
        self._orders.say(session, Action.FINISH)

    def pause(self, session: Session) -> None:
        """Asks for a pause: the client is slow."""
        self._add_unless_hello_says(make_pause(session))
        self._orders.say(session, Action.PAUSE)

    def unpause(self, session: Session) -> None:
        """Ends the pause: the client has caught up."""
        self._add_unless_hello_says(make_unpause(session))
        self._orders.say(session, Action.UNPAUSE)

    def check(self, session: Session, worker_id: str, worker_instance: str) -> None:
        """Asks whether anybody still has the attempt, since its worker may have been replaced."""
        self._add_unless_hello_says(make_check(session, worker_id, worker_instance))

    def say_reach(self, worker: Worker, reach: WorkerReach) -> None:
        """How a worker is reached from here; a new scheduler takes all for heard."""
        if not self._has_hello_to_come:
            self._reach[worker.instance] = make_reach(worker, reach)
            self._filled.set()

    # ---- the link's side

    def begin_link(self) -> None:
        """A hello is made now: what follows it has to be said."""
        self._has_hello_to_come = False
        self._reach.clear()
        self._entries = deque(entry for entry in self._entries if not _is_said_by_hello(entry))

    def end_link(self) -> None:
        """The link has ended: the next hello says how everything stands then."""
        self._has_hello_to_come = True

    async def wait(self) -> None:
        """Returns when something is queued."""
        await self._filled.wait()

    def wake(self) -> None:
        """Somebody else has something to say with the next message."""
        self._filled.set()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be said."""
        return not self._entries and not self._reach

    def take(self) -> list[Operation]:
        """The next operations for one message; their submits count as submitted from here on."""
        operations = list(self._reach.values())
        self._reach.clear()
        size, now = 0, self._clock()
        while self._entries and size < MAX_MESSAGE_BYTES and len(operations) < MAX_MESSAGE_OPERATIONS:
            entry = self._entries.popleft()
            operation = entry.make(now) if isinstance(entry, _Submission) else entry
            if operation is not None:
                operations.append(operation)
                size += operation.ByteSize()
        if not self._entries:
            self._filled.clear()
        return operations

    def expire(self, older_than_s: float) -> None:
        """Refuses first attempts that have waited longer; called while there is no scheduler to send them to."""
        limit = self._clock() - older_than_s
        waiting = [entry for entry in self._entries if isinstance(entry, _Submission)]
        for entry in waiting:
            if entry.since_s <= limit and not entry.session.was_submitted:
                entry.session.on_rejected(entry.attempt, UnavailableError("the scheduler cannot be reached"))
        self._entries = deque(
            entry for entry in self._entries if not (isinstance(entry, _Submission) and entry.is_stale)
        )

    def _add_unless_hello_says(self, operation: Operation) -> None:
        if not self._has_hello_to_come:
            self._add(operation)

    def _add(self, operation: Operation) -> None:
        self._entries.append(operation)
        self._filled.set()


def _is_said_by_hello(entry: _Submission | Operation) -> bool:
    """Pauses and questions about requests that a hello names."""
    return not isinstance(entry, _Submission) and entry.WhichOneof("operation") in (
        "pause",
        "unpause",
        "check",
    )
