"""The way into a step engine, whoever drives it: what the links hand in, in one order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from signalbox.v1 import to_worker_pb2, worker_pb2
from worker_svc.links import delta
from worker_svc.steps.items import (
    Announce,
    ArrivedRequest,
    ArrivedStep,
    GiveUp,
    Greeted,
    Item,
    Lent,
    LinkClosed,
    LinkMark,
    Ordered,
    ReadUpTo,
    Snapshot,
)
from worker_svc.transfer.control.news import Arrival

MAX_WAITING_BYTES = 128 << 20
"""What a scheduler sends ahead of its steps is bounded by the worker's slots; two messages of the largest size fit."""


class StepInbox:
    """Puts what arrives behind each other. The thread of the links calls its methods."""

    def __init__(self, post: Callable[[Item], None], clock: Callable[[], float]) -> None:
        """post: brings an item to the engine; clock: the engine's."""
        self._post, self._clock = post, clock
        self._link = LinkMark()
        self.newest_step_id = 0
        """Number of the last step that came by this link; 0: none has."""

    def put(self, message: to_worker_pb2.AttachWorkerResponse) -> None:
        """Takes what the scheduler sent. Raises ValueError when it cannot be read, or more waits than is ever sent."""
        now, link = self._clock(), self._link
        if message.HasField("loan"):
            # Ahead of the steps: a block that one of them names is lent no more.
            self._post(Lent(link, delta.parse_loan(message.loan)))
        for request in message.new_requests:
            self._post(ArrivedRequest(link, request))
        for step in message.steps:
            self.newest_step_id = step.step_id
            if delta.has_prefill(step):
                link.newest_start = step.step_id
            self._post(ArrivedStep(link, step, now))
        link.num_bytes += message.ByteSize()
        if link.num_bytes - link.num_taken > MAX_WAITING_BYTES:
            raise ValueError(f"more than {MAX_WAITING_BYTES >> 20} MiB wait for their turn")
        self._post(ReadUpTo(link, link.num_bytes))

    @property
    def is_empty(self) -> bool:
        """Nothing that came by this link waits for its turn. To be asked ahead of what the engine holds, which may take
        the last of it in between."""
        return self._link.num_bytes == self._link.num_taken

    def greeted(self, term: int, instance: str) -> None:
        """The scheduler has taken our hello; ahead of all that it sends."""
        self._post(Greeted(self._link, term, instance))

    def link_closed(self) -> None:
        """The link, or the attempt to have one, is over for good. What came by it and was not taken is dropped."""
        self._link.is_closed = True
        self._link, self.newest_step_id = LinkMark(), 0
        self._post(LinkClosed())

    def announce(self) -> None:
        """Says once more what became of grammars, for a scheduler that is being greeted."""
        self._post(Announce())

    def order(self, frontend_instance: str, operations: Sequence[worker_pb2.AttemptOperation]) -> None:
        """Takes what a frontend wants while it has no scheduler."""
        self._post(Ordered(frontend_instance, delta.parse_operations(operations)))

    def arrived(self, arrival: Arrival) -> None:
        """Takes what has come of a request from another worker."""
        self._post(arrival)

    def give_up(self) -> None:
        """Forgets all requests; the next snapshot is none."""
        self._post(GiveUp())

    def snapshot(self) -> Snapshot:
        """The state after all steps that have arrived, and after our own: the worker rests from then on, until it is
        greeted or the link is closed. None when nothing has ever run here."""
        future = Snapshot()
        self._post(future)
        return future
