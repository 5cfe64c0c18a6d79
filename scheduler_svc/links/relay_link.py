"""The workers behind one relay: their links share its stream and nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from google.protobuf.message import DecodeError

from scheduler_svc.links.directory import MAX_OUTBOX, MAX_WORKER_BYTES
from scheduler_svc.links.names import check_name
from scheduler_svc.links.worker_link import WorkerSession
from scheduler_svc.step_loop import StepLoop
from signalbox.errors import InvalidRequestError, SignalboxError, code_of
from signalbox.links.outbox import Outbox, OutboxFullError
from signalbox.links.versions import check_versions
from signalbox.v1 import from_worker_pb2, generation_pb2, scheduler_pb2, to_worker_pb2

logger = logging.getLogger(__name__)
MAX_WINDOW_US = 100_000


class RelayLink:
    """One relay from its hello until its stream ends."""

    def __init__(self, loop: StepLoop, first: scheduler_pb2.AttachWorkersRequest) -> None:
        """Raises InvalidRequestError when there is no hello, or a wrong one."""
        if not first.HasField("hello"):
            raise InvalidRequestError("the first message must carry hello", field="hello")
        if first.hello.window_us > MAX_WINDOW_US:
            raise InvalidRequestError(
                f"window_us is {first.hello.window_us}; at most {MAX_WINDOW_US} are allowed",
                field="hello.window_us",
            )
        if first.hello.relay_id:  # one without a name is only logged so
            check_name("hello.relay_id", first.hello.relay_id)
        self.relay_id = first.hello.relay_id
        try:
            check_versions(first.hello.protocol, f"relay {self.relay_id!r}", "this scheduler")
        except InvalidRequestError as error:
            logger.error("%s", error.message)
            raise
        self.window_s = first.hello.window_us / 1e6
        self.outbox = Outbox[scheduler_pb2.RelayedResponse](
            MAX_OUTBOX, MAX_WORKER_BYTES, lambda entry: len(entry.message)
        )
        self.is_stuck = asyncio.Event()
        """Set when the relay does not read: its stream is to end."""
        self._loop = loop
        self._sessions: dict[int, WorkerSession] = {}
        self._newest = 0
        """Highest number of a link so far."""
        logger.info("relay %s attached", self.relay_id)

    def take(self, entries: Iterable[scheduler_pb2.RelayedRequest]) -> None:
        """What workers sent. What is wrong with one worker closes its link only. Raises InvalidRequestError for what no
        relay says, and OutboxFullError: then the relay's stream is to end."""
        for entry in entries:
            if not entry.link:
                raise InvalidRequestError("links are numbered from 1", field="entries.link")
            kind = entry.WhichOneof("entry")
            if kind == "message":
                self._take_message(entry.link, entry.message)
            elif kind == "closed":
                self._end(entry.link)
            else:
                raise InvalidRequestError("an entry must carry message or closed", field="entries.entry")

    def end(self) -> None:
        """The relay's stream ended, and with it the links of its workers."""
        logger.info("relay %s detached with %d workers", self.relay_id, len(self._sessions))
        for number in list(self._sessions):
            self._end(number)

    def _take_message(self, number: int, raw: bytes) -> None:
        is_new = number > self._newest
        session = self._sessions.get(number)
        if session is None and not is_new:
            return  # it was under way when we closed the link
        self._newest = max(self._newest, number)
        try:
            message = from_worker_pb2.AttachWorkerRequest.FromString(raw)
            if session is None:
                self._open(number, message)
            elif not session.take(message):
                self._close_open(number)
        except SignalboxError as error:
            self._close(number, error)
        except DecodeError as error:
            self._close(number, InvalidRequestError(str(error), field="entries.message"))

    def _open(self, number: int, first: from_worker_pb2.AttachWorkerRequest) -> None:
        def send(message: to_worker_pb2.AttachWorkerResponse) -> None:
            self.outbox.put(scheduler_pb2.RelayedResponse(link=number, message=message.SerializeToString()))

        session = WorkerSession(self._loop, first, send, lambda: self._close_open(number))
        self._sessions[number] = session
        if session.is_closed:  # while it was taken
            self._close_open(number)

    def _close_open(self, number: int) -> None:
        """Ends a link from our side, if it has not ended: the worker is to say hello again."""
        session = self._sessions.get(number)
        if session is None:
            return
        try:
            self._close(number, session.refusal)
        except OutboxFullError:
            self.is_stuck.set()

    def _close(self, number: int, error: SignalboxError | None = None) -> None:
        """Ends a link from our side. `error` says why it was refused; None: the worker is to say hello again."""
        self._end(number)
        closed = scheduler_pb2.LinkClosed()
        if error is not None:
            closed.error.CopyFrom(_message_of(error))
        self.outbox.put(scheduler_pb2.RelayedResponse(link=number, closed=closed))

    def _end(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is not None:
            session.end()


def _message_of(error: SignalboxError) -> generation_pb2.Error:
    return generation_pb2.Error(code=code_of(error), message=error.message, field=error.field)
