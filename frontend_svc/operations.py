"""What waits to be said to the scheduler, in order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass

from frontend_svc.clock import Clock, loop_time
from frontend_svc.session import Session
from frontend_svc.submission import (
    Operation,
    make_cancel,
    make_check,
    make_finish,
    make_pause,
    make_submit,
    make_unpause,
)
from signalbox.errors import InternalError, UnavailableError

log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 4 << 20
"""A message is closed when it has grown beyond this."""


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

    Attempts that end before they were sent are never sent, and neither is anything about them.
    """

    def __init__(self, clock: Clock = loop_time) -> None:
        self._clock = clock
        self._entries: deque[_Submission | Operation] = deque()
        self._filled = asyncio.Event()

    def submit(self, session: Session) -> None:
        """A new attempt."""
        self._entries.append(_Submission(session, session.attempt, self._clock()))
        self._filled.set()

    def cancel(self, session: Session) -> None:
        """Nobody wants the output any more."""
        if session.submitted:
            self._add(make_cancel(session))

    def finish(self, session: Session, num_output_tokens: int) -> None:
        """A stop string was found."""
        self._add(make_finish(session, num_output_tokens))

    def pause(self, session: Session) -> None:
        """The client is slow."""
        self._add(make_pause(session))

    def unpause(self, session: Session) -> None:
        """It has caught up."""
        self._add(make_unpause(session))

    def check(self, session: Session, worker_id: str, worker_instance: str) -> None:
        """Its worker may have been replaced."""
        if session.submitted:
            self._add(make_check(session, worker_id, worker_instance))

    async def wait(self) -> None:
        """Returns when something is queued."""
        await self._filled.wait()

    @property
    def is_empty(self) -> bool:
        """Nothing waits."""
        return not self._entries

    def take(self) -> list[Operation]:
        """The next operations for one message; their submits count as submitted from here on."""
        operations: list[Operation] = []
        size, now = 0, self._clock()
        while self._entries and size < MAX_MESSAGE_BYTES:
            entry = self._entries.popleft()
            operation = entry.make(now) if isinstance(entry, _Submission) else entry
            if operation is not None:
                operations.append(operation)
                size += operation.ByteSize()
        if not self._entries:
            self._filled.clear()
        return operations

    def expire(self, older_than_s: float) -> None:
        """Refuses the submits that have waited longer; called while there is no scheduler to send them to."""
        limit = self._clock() - older_than_s
        waiting = [entry for entry in self._entries if isinstance(entry, _Submission)]
        for entry in waiting:
            if entry.since_s <= limit:
                entry.session.on_rejected(entry.attempt, UnavailableError("the scheduler cannot be reached"))
        self._entries = deque(
            entry for entry in self._entries if not (isinstance(entry, _Submission) and entry.is_stale)
        )

    def _add(self, operation: Operation) -> None:
        self._entries.append(operation)
        self._filled.set()
