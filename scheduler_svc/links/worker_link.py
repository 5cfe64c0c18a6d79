"""What the stream of a worker means to the step loop, whether it comes by itself or a relay carries it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from google.protobuf.message import DecodeError

from scheduler_svc.core.cluster.offer import OfferError
from scheduler_svc.core.cluster.term import TermError
from scheduler_svc.core.recovery.snapshot import SnapshotError
from scheduler_svc.core.step.report import DivergenceError
from scheduler_svc.links.arrivals import Arrival
from scheduler_svc.links.directory import Send, WorkerLink, close_nothing
from scheduler_svc.links.names import check_worker_names
from scheduler_svc.step_loop import StepLoop
from signalbox.errors import InternalError, InvalidRequestError, SignalboxError
from signalbox.links.outbox import OutboxFullError
from signalbox.links.versions import check_versions
from signalbox.v1 import from_worker_pb2

logger = logging.getLogger(__name__)
SNAPSHOT_FIELD = "hello.snapshot"
"""Named by the refusal of a hello whose snapshot nobody will ever take."""
MAX_EARLY_BYTES = 8 << 20
"""What a worker may say before it is taken in, its hello aside; whoever says more is to say hello again (W1)."""
ITEM_BYTES = 256
"""What an empty item takes here, about."""
TERM_FIELD = "hello.scheduler_epoch"
"""Named by the refusal of a term that no scheduler can have had."""


class WorkerSession:
    """One worker from its hello until its link ends. `end` has to be called, whatever happened."""

    def __init__(
        self,
        loop: StepLoop,
        first: from_worker_pb2.AttachWorkerRequest,
        send: Send,
        close: Callable[[], None] = close_nothing,
    ) -> None:
        """`close` ends the stream from our side. Raises InvalidRequestError when there is no hello, or when its offer
        contradicts our settings; DuplicateWorkerError when another process has the id; UnavailableError when its links
        fail again and again; InternalError when it cannot be taken for a reason of ours; and OutboxFullError."""
        if not first.HasField("hello"):
            raise InvalidRequestError("the first message must carry hello", field="hello")
        self._loop, self._close = loop, close
        self._worker_id, self._instance = first.hello.worker_id, first.hello.worker_instance
        self._link: WorkerLink | None = None
        """None until the worker is taken in."""
        self._early: list[from_worker_pb2.AttachWorkerRequest] = []
        """What came with the hello, or before the worker was taken in."""
        self._early_room = MAX_EARLY_BYTES
        self.is_closed = False
        """The stream is to end."""
        self.refusal: SignalboxError | None = None
        """Why the hello was not taken, if that was found out between two messages."""
        self._is_queued = False
        """The hello is whole, and is taken or waits for its turn."""
        check_worker_names(first.hello)
        self._check_versions(first.hello)
        loop.admit(first.hello)
        with self._hello_is_taken():
            self._greeting = loop.greet(first.hello)
        self._arrival = Arrival(self._greeting, send, self._on_close)
        loop.arrivals.enter(self._arrival)
        try:
            self._gather(first)
        except Exception:
            self.end()
            raise

    def take(self, message: from_worker_pb2.AttachWorkerRequest) -> bool:
        """Takes reports and events. False: the link is to be closed, and the worker says hello again with its
        snapshot. Raises what the constructor raises, as long as the hello is not whole."""
        if self._link is None:
            self._gather(message)
            return not self.is_closed
        if not self._loop.is_current(self._worker_id, self._link):
            return False  # it said hello on another stream, or did not read this one
        try:
            self._loop.on_worker(self._worker_id, message)
        except DivergenceError as error:
            logger.error(
                "worker %s is out of step (%s); it is asked for its snapshot", self._worker_id, error
            )
            self._note(f"it was out of step ({error})")
            return False
        except Exception as error:
            # A report that cannot be read must not break the links of others behind the same relay.
            logger.exception("a message of worker %s failed", self._worker_id)
            self._note(f"a message of it could not be taken ({type(error).__name__})")
            return False
        return True

    def end(self) -> None:
        """Ends what the link has begun."""
        self._arrival.is_over = True
        self._loop.arrivals.leave(self._arrival)
        if self._link is not None:
            self._loop.detach_worker(self._worker_id, self._link)

    # -- hello --

    def _gather(self, message: from_worker_pb2.AttachWorkerRequest) -> None:
        """Takes the next part of the hello, and has the worker taken in when that was the last. What comes behind waits
        until it is."""
        if message.HasField("snapshot_part"):
            with self._hello_is_taken():
                self._greeting.add(message.snapshot_part)
        if message.outputs or message.events:
            self._keep(message)
        if self.is_closed:
            return
        if self._greeting.is_whole and not self._is_queued:
            self._is_queued = True
            self._loop.arrivals.put(self._be_taken_in(), self._refuse)

    def _keep(self, early: from_worker_pb2.AttachWorkerRequest) -> None:
        num_items = len(early.outputs) + len(early.events)
        size = early.ByteSize() - early.hello.ByteSize() - early.snapshot_part.ByteSize()
        self._early_room -= size + num_items * ITEM_BYTES
        if self._early_room >= 0:
            self._early.append(early)
            return
        logger.warning("worker %s says too much before it is taken in; its link is closed", self._worker_id)
        self._note("it said too much before it was taken in")
        self._early = []
        self._on_close()

    def _be_taken_in(self) -> Iterator[None]:
        """Has the worker taken in. Raises what is wrong with its hello."""
        try:
            with self._hello_is_taken():
                self._link = yield from self._loop.take_in(self._arrival)
        finally:
            self._loop.arrivals.leave(self._arrival)
        early, self._early = self._early, []
        if self._link is not None and not all(self.take(message) for message in early):
            self._on_close()

    def _check_versions(self, hello: from_worker_pb2.WorkerHello) -> None:
        """Raises InvalidRequestError when we do not understand each other: what else it says may mean another thing."""
        try:
            check_versions(hello.protocol, f"worker {self._worker_id!r}", "this scheduler")
        except InvalidRequestError as error:
            logger.error("%s", error.message)
            self._note(error.message)
            raise

    def _refuse(self, error: Exception) -> None:
        """What was wrong was found out when nobody waited for an answer of ours."""
        logger.warning("the hello of worker %s was not taken: %s", self._worker_id, error)
        self.refusal = error if isinstance(error, SignalboxError) else None
        self._on_close()

    @contextmanager
    def _hello_is_taken(self) -> Iterator[None]:
        """Names what is wrong with a hello, and remembers who says such things."""
        try:
            yield
        except (ValueError, DecodeError) as error:
            self._note(f"its hello was refused ({error})")
            raise InvalidRequestError(str(error), field=_field_of(error)) from None
        except (SignalboxError, OutboxFullError):
            raise
        except Exception as error:
            logger.exception("the hello of worker %s failed", self._worker_id)
            self._note(f"its hello failed ({type(error).__name__})")
            raise InternalError(f"internal error ({type(error).__name__})") from None

    def _note(self, reason: str) -> None:
        self._loop.note_trouble(self._worker_id, self._instance, reason)

    def _on_close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._close()


def _field_of(error: Exception) -> str:
    """What of a hello is refused."""
    if isinstance(error, OfferError):
        return error.field
    if isinstance(error, TermError):
        return TERM_FIELD
    return SNAPSHOT_FIELD if isinstance(error, SnapshotError) else "hello"
