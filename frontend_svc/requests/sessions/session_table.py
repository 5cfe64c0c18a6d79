"""All open requests of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from uuid import uuid4

from frontend_svc.access.quota import QuotaLease
from frontend_svc.clock import Clock, loop_time
from frontend_svc.requests.block_hashes import BlockHashes
from frontend_svc.requests.request import CheckedRequest
from frontend_svc.requests.sessions.open_bytes import OPEN_RETRY_S, OpenBytes
from frontend_svc.requests.sessions.session import Session
from frontend_svc.requests.sessions.surroundings import Observer, Operations
from frontend_svc.text.text_stream import OutputStream
from signalbox.errors import CancelledError, DuplicateRequestError, UnavailableError, limit_reached
from signalbox.protocol.enums import LossCause
from signalbox.telemetry.spans import Span


class SessionTable:
    """Finds sessions by attempt and by request id, and mints both."""

    def __init__(
        self,
        operations: Operations[Session],
        observer: Observer[Session],
        *,
        replay_limit: int,
        max_backlog_tokens: int,
        max_open_requests: int,
        max_open_bytes: int,
        clock: Clock = loop_time,
    ) -> None:
        self.operations = operations
        self.observer = observer
        self.clock = clock
        self.replay_limit = replay_limit
        self.max_backlog_tokens = max_backlog_tokens
        self._max_open_requests = max_open_requests
        self.open_bytes = OpenBytes(max_open_bytes)
        self._by_attempt: dict[int, Session] = {}
        self._by_request_id: dict[tuple[str, str], Session] = {}
        """By tenant and name: what others call their requests is no tenant's business."""
        self._by_ring_name: dict[str, Session] = {}
        self._last_attempt = 0

    def __len__(self) -> int:
        return len(self._by_ring_name)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_ring_name.values()))

    def open(
        self,
        request: CheckedRequest,
        text: OutputStream | None = None,
        hashes: BlockHashes | None = None,
        span: Span | None = None,
        lease: QuotaLease | None = None,
    ) -> Session:
        """Starts a request and submits it; `lease` hears of its begin and end.

        Raises DuplicateRequestError for an id of the same tenant's that is still running, ResourceExhaustedError for
        too many, RequestTooLargeError for one that can never have room.
        """
        if (request.tenant, request.request_id) in self._by_request_id:
            raise DuplicateRequestError(
                f"the request id {request.request_id!r} belongs to a request that is still running",
                field=request.names.request_id,
            )
        if len(self) >= self._max_open_requests:
            most = self._max_open_requests
            raise limit_reached(
                f"max_open_requests: {len(self)} of {most} requests are open here", OPEN_RETRY_S
            )
        self.open_bytes.enter(request, hashes)
        session = Session(request, self, text, hashes, span, lease, self._ring_name(request.request_id))
        if lease is not None:
            lease.start()
        self._by_request_id[request.tenant, request.request_id] = self._by_ring_name[session.ring_name] = (
            session
        )
        session.begin_attempt()
        return session

    def _ring_name(self, request_id: str) -> str:
        """What the request is called in the ring: as it calls itself, unless another tenant's does, too."""
        name, number = request_id, self._last_attempt
        while name in self._by_ring_name:
            number += 1
            name = f"{request_id}~{number}"
        return name

    def cancel_stalled(self, now: float, stall_s: float) -> None:
        """Cancels requests paused for longer: their clients read nothing, but hold cache blocks."""
        for session in self:
            if session.paused_s is not None and now - session.paused_s > stall_s:
                session.cancel(CancelledError("the client left its output unread for too long"))

    def may_be_on(self, worker_id: str) -> list[Session]:
        """Sessions whose current attempt is on this worker, goes there perhaps (HO10), or is not known to be anywhere:
        `placed` may be lost with a scheduler."""
        return [session for session in self if session.submitted and session.legs.may_be_on(worker_id)]

    def end_abandoned(self, since_s: float, lost_scheduler_s: float) -> None:
        """Ends what was once submitted and has had no new token for so long, while there was no scheduler; it went at
        `since_s`."""
        limit = self.clock() - lost_scheduler_s
        if since_s > limit:
            return
        for session in self:
            if session.was_submitted and session.last_output_s <= limit:
                message = f"there has been no scheduler for {lost_scheduler_s:g} s, and no further output"
                session.fail(UnavailableError(message))

    def restart_all(self, worker_id: str, reason: str) -> None:
        """Output of this worker is missing, nobody knows whose: all that may be there go on as new attempts."""
        for session in self.may_be_on(worker_id):
            session.lose(reason, LossCause.OUTPUT_LOST)

    def leave(self, worker_id: str, reason: str, unreachable_s: float) -> None:
        """What this worker makes does not come here: all that is known to be there goes on elsewhere. Of what may have
        been handed over to it, that is whatever has had no output for `unreachable_s`."""
        limit = self.clock() - unreachable_s
        for session in self.may_be_on(worker_id):
            is_there = session.worker_id == worker_id
            if is_there or (worker_id in session.legs.workers and session.last_output_s <= limit):
                session.lose(reason, LossCause.SILENT)

    def retry(self, session: Session, delay_s: float) -> None:
        """Has the session begin another attempt after so long, unless it has ended or begun one by then."""
        attempt = session.attempt

        def begin() -> None:
            if self._by_attempt.get(attempt) is session:
                session.begin_attempt()

        asyncio.get_running_loop().call_later(delay_s, begin)

    def check_all(self, worker_id: str, worker_instance: str) -> None:
        """Another process stands in the worker's place, or none: an end that the old one had not handed over is gone
        with it, so the scheduler is asked about every request that may have been there."""
        for session in self.may_be_on(worker_id):
            self.operations.check(session, worker_id, worker_instance)

    def by_attempt(self, attempt: int) -> Session | None:
        """The open request that this attempt is the newest of."""
        return self._by_attempt.get(attempt)

    def renumber(self, session: Session) -> None:
        """Gives the session its next attempt; the old one names nothing from now on."""
        self._by_attempt.pop(session.attempt, None)
        self._last_attempt += 1
        session.attempt = self._last_attempt
        self._by_attempt[session.attempt] = session

    def forget(self, session: Session) -> None:
        """Takes a session that has ended out of the table."""
        del self._by_attempt[session.attempt]
        del (
            self._by_request_id[session.request.tenant, session.request_id],
            self._by_ring_name[session.ring_name],
        )
        self.open_bytes.leave(session.request)
        if session.lease is not None:
            session.lease.end(len(session.output))

    def check_integrity(self) -> None:
        """Asserts that all maps name the same sessions, none of which has ended."""
        assert {id(s) for s in self._by_attempt.values()} == {id(s) for s in self._by_request_id.values()}
        assert {id(s) for s in self._by_attempt.values()} == {id(s) for s in self._by_ring_name.values()}
        assert self._by_attempt or not self.open_bytes.num_bytes
        for attempt, session in self._by_attempt.items():
            assert session.attempt == attempt <= self._last_attempt
            assert not session.ended
            session.legs.check_integrity()
            assert self._by_request_id[session.request.tenant, session.request_id] is session
            assert self._by_ring_name[session.ring_name] is session


def make_request_id(prefix: str) -> str:
    """A name for a request whose client gave none."""
    return prefix + uuid4().hex
